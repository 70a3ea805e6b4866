"use strict";
// Text on the bars where it can be read, the names of ranks, the times at the top, the whole step in
// small above them.

const Labels = (() => {
  const FONT = '"DejaVu Sans", "Segoe UI", system-ui, sans-serif';
  const DIGIT = 0.6;  // width of a digit, in heights of the font

  function draw(context, scene, view) {
    context.save();
    context.beginPath();
    context.rect(View.GUTTER, View.AXIS, view.plot(), view.height - View.AXIS);
    context.clip();
    context.textAlign = "center";
    context.textBaseline = "middle";
    scene.timelines.forEach((timeline, row) => forRanks(view, row, timeline, (rank, top) => {
      actions(context, timeline, view, rank, top);
      causes(context, timeline, view, rank, top);
    }));
    context.restore();
    names(context, scene, view);
    axis(context, view);
  }

  function forRanks(view, row, timeline, visit) {
    for (let rank = 0; rank < timeline.model.ranks; ++rank) {
      const top = view.top(rank, row);
      if (top <= view.height && top + view.one() >= View.AXIS) visit(rank, top);
    }
  }

  /// The name where it fits, else the micro-batch; smaller letters before none.
  function actions(context, timeline, view, rank, top) {
    const {model} = timeline, a = model.actions, colours = Theme.colours();
    const size = Math.min(12, view.bar - 2);
    if (size < 7) return;
    const last = a.begin[rank + 1];
    let lastFont = "", lastColour = "";
    const first = Model.firstEndingAfter(a.end, a.begin[rank], last, view.from);
    const beyond = Model.firstEndingAfter(a.end, first, last, view.to);
    if (beyond - first > view.plot() / 4) return;
    for (let i = first; i < last && a.start[i] < view.to; ++i) {
      const x0 = Math.max(view.x(a.start[i]), View.GUTTER), x1 = Math.min(view.x(a.end[i]), view.width);
      const room = x1 - x0 - 1.5;
      if (room < 4) continue;
      let text = Model.nameOf(model, i), height = size;
      if (room < text.length * size * 0.58 + 8) {
        text = a.look[i] === 5 ? "" : String(a.microBatch[i]);
        height = Math.min(size, Math.floor(room / (text.length * DIGIT)));
      }
      if (text === "" || height < 7) continue;
      const isLit = !timeline.lit || timeline.lit[i] === 1;
      const colour = isLit ? colours.onLook[a.look[i]][Math.min(model.chunk[i], Theme.SHADES - 1)] : colours.quiet;
      const font = `${height}px ${FONT}`;
      if (font !== lastFont) context.font = lastFont = font;
      if (colour !== lastColour) context.fillStyle = lastColour = colour;
      context.fillText(text, (x0 + x1) / 2, top + view.bar / 2 + 0.5);
    }
  }

  function causes(context, timeline, view, rank, top) {
    const {model} = timeline, b = model.bubbles;
    if (view.bar < 12) return;
    context.fillStyle = Theme.colours().ink;
    context.globalAlpha = 0.7;
    context.font = `10px ${FONT}`;
    const last = b.begin[rank + 1];
    for (let i = Model.firstEndingAfter(b.end, b.begin[rank], last, view.from), n = 0;
         i < last && b.start[i] < view.to && n < 400; ++i, ++n) {
      const x0 = Math.max(view.x(b.start[i]), View.GUTTER), x1 = Math.min(view.x(b.end[i]), view.width);
      const text = model.facts.causes[b.cause[i]];
      if (x1 - x0 > text.length * 5.8 + 8) context.fillText(text, (x0 + x1) / 2, top + view.bar / 2 + 0.5);
    }
    context.globalAlpha = 1;
  }

  function names(context, scene, view) {
    const colours = Theme.colours();
    context.save();
    context.beginPath();
    context.rect(0, View.AXIS, View.GUTTER, view.height - View.AXIS);
    context.clip();
    context.textAlign = "left";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(11 / view.pitch()));
    scene.timelines.forEach((timeline, row) => forRanks(view, row, timeline, (rank, top) => {
      if (rank % every > 0) return;
      const size = Math.min(12, Math.max(9, view.pitch() - 1));
      context.font = `${size}px ${FONT}`;
      context.fillStyle = row === 0 ? colours.ink : colours.quiet;
      const own = Model.rankName(timeline.model, rank);
      const name = scene.timelines.length > 1 ? `${own.slice(5)} ${"AB"[row]}` : own;
      context.fillText(name, 8, top + Math.max(view.bar, size) / 2);
      if (view.strip() >= 9 && row === 0) {
        context.font = `9px ${FONT}`;
        context.fillStyle = colours.quiet;
        context.fillText(peakText(timeline.model, rank), 8, top + view.bar + view.lane() + view.strip() / 2);
      }
    }));
    context.restore();
  }

  function peakText(model, rank) {
    const peak = model.facts.peaks[rank];
    return model.memory.hasBytes ? Units.bytes(peak.bytes) : `${peak.activations} live`;
  }

  /// Times at round numbers, some 90 pixels apart.
  function axis(context, view) {
    const colours = Theme.colours(), rough = view.perPixel() * 90;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    context.font = `10px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.strokeStyle = colours.line;
    context.fillStyle = colours.quiet;
    context.beginPath();
    for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
      const x = Math.round(view.x(time)) + 0.5;
      context.moveTo(x, 4);
      context.lineTo(x, View.AXIS);
      context.fillText(Units.time(time, step), x + 4, View.AXIS / 2);
    }
    context.moveTo(View.GUTTER, View.AXIS - 0.5);
    context.lineTo(view.width, View.AXIS - 0.5);
    context.stroke();
  }

  return {draw, FONT};
})();
