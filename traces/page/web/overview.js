"use strict";
// The whole step in one line above the chart: how all ranks together share their time, and which part
// of it the chart shows.

const Overview = (() => {
  const HEIGHT = 26;

  function image(context, timeline, view) {
    const {model, sums} = timeline, a = model.actions, colours = Theme.colours();
    const width = view.width - View.GUTTER, picture = context.createImageData(width, HEIGHT);
    const pixels = new Uint32Array(picture.data.buffer).fill(colours.idle);
    const step = view.end / width, own = new Float64Array(Model.LOOKS.length);
    const next = a.begin.slice(0, model.ranks);
    for (let x = 0; x < width; ++x) {
      const from = x * step, to = from + step, all = new Float64Array(Model.LOOKS.length);
      for (let rank = 0; rank < model.ranks; ++rank) {
        const last = a.begin[rank + 1];
        let i = next[rank];
        while (i < last && a.end[i] <= from) ++i;
        next[rank] = i;
        if (i >= last || a.start[i] >= to) continue;
        let k = i;
        while (k + 1 < last && a.start[k + 1] < to) ++k;
        Levels.share(a, sums, i, k, from, to, own);
        for (let look = 0; look < own.length; ++look) all[look] += own[look];
      }
      let y = HEIGHT;
      for (let look = 0, sum = 0; look < all.length; ++look) {
        sum += all[look];
        const until = HEIGHT - Math.round(HEIGHT * Math.min(1, sum / (step * model.ranks)));
        for (; y > until; --y) pixels[(y - 1) * width + x] = colours.looks[look][0];
      }
    }
    return picture;
  }

  function draw(context, picture, view) {
    const colours = Theme.colours();
    context.fillStyle = colours.groundText;
    context.fillRect(0, 0, view.width, HEIGHT);
    context.putImageData(picture, View.GUTTER, 0);
    const plot = view.width - View.GUTTER;
    const x0 = View.GUTTER + plot * view.from / view.end, x1 = View.GUTTER + plot * view.to / view.end;
    context.globalAlpha = 0.65;
    context.fillRect(View.GUTTER, 0, x0 - View.GUTTER, HEIGHT);
    context.fillRect(x1, 0, view.width - x1, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(x0 + 1, 1, Math.max(2, x1 - x0 - 2), HEIGHT - 2);
    context.font = `10px ${Labels.FONT}`;
    context.fillStyle = colours.quiet;
    context.textBaseline = "middle";
    context.fillText("whole step", 8, HEIGHT / 2);
  }

  return {image, draw};
})();
