"use strict";
// The bars, lanes and strips of all ranks as pixels. A pixel column inside one action has its colour;
// one that several share is stacked by their shares, so forwards and backwards never blur into one.

const Paint = (() => {
  const SEPARATE = 4;  // pixels from which on a gap is left between two actions

  /// `lit`: null, or by action 1 for those that are not dimmed.
  function paint(context, scene, view, ratio) {
    const width = Math.round(view.width * ratio), height = Math.round(view.height * ratio);
    const image = context.createImageData(width, height);
    const target = {
      pixels: new Uint32Array(image.data.buffer), width, height, ratio,
      left: Math.round(View.GUTTER * ratio), top: Math.round(View.AXIS * ratio),
      colours: Theme.colours(), column: 0, perPixel: 0,
    };
    target.perPixel = (view.to - view.from) / (width - target.left);
    target.pixels.fill(target.colours.ground);
    scene.timelines.forEach((timeline, row) => {
      for (let rank = 0; rank < timeline.model.ranks; ++rank) {
        const top = view.top(rank, row);
        if (top > view.height || top + view.one() < View.AXIS) continue;
        bars(target, timeline, view, rank, top);
        if (view.showMessages) lane(target, timeline, view, rank, top + view.bar);
        if (view.showMemory) strip(target, timeline, view, rank, top + view.bar + view.lane());
      }
    });
    context.putImageData(image, 0, 0);
  }

  function fill(target, x0, x1, y0, y1, colour) {
    const {pixels, width} = target;
    const from = Math.max(y0, target.top), to = Math.min(y1, target.height);
    if (x1 - x0 > 16) {
      for (let y = from; y < to; ++y) pixels.fill(colour, y * width + x0, y * width + x1);
      return;
    }
    for (let y = from; y < to; ++y) {
      for (let at = y * width + x0, end = y * width + x1; at < end; ++at) pixels[at] = colour;
    }
  }

  /// Rows of pixels of something that is `height` tall at `top`.
  const rows = (target, top, height) =>
    [Math.round(top * target.ratio), Math.round((top + height) * target.ratio)];

  function bars(target, timeline, view, rank, top) {
    const {model, sums, lit} = timeline, a = model.actions, b = model.bubbles;
    const [y0, y1] = rows(target, top, view.bar);
    const last = a.begin[rank + 1], columns = target.width - target.left, step = target.perPixel;
    const shares = new Float64Array(Model.LOOKS.length);
    let i = Model.firstEndingAfter(a.end, a.begin[rank], last, view.from);
    let gap = Model.firstEndingAfter(b.end, b.begin[rank], b.begin[rank + 1], view.from);
    for (let x = 0; x < columns;) {
      const from = view.from + x * step, to = from + step;
      while (i < last && a.end[i] <= from) ++i;
      while (gap < b.begin[rank + 1] && b.end[gap] <= from) ++gap;
      const left = target.left + x;
      if (i < last && a.start[i] <= from && a.end[i] >= to) {
        const until = Math.min(columns, Math.max(x + 1, Math.floor((a.end[i] - view.from) / step)));
        action(target, timeline, i, left, target.left + until, y0, y1);
        x = until;
      } else if (i >= last || a.start[i] >= to) {
        const isIn = gap < b.begin[rank + 1] && b.start[gap] < to;
        const next = Math.min(i < last ? a.start[i] : Infinity,
                              isIn ? b.end[gap] : gap < b.begin[rank + 1] ? b.start[gap] : Infinity);
        const until = Math.min(columns, Math.max(x + 1, Math.floor((next - view.from) / step)));
        const colour = isIn ? idle(target, b.cause[gap], lit) : target.colours.ground;
        fill(target, left, target.left + until, y0, y1, colour);
        x = until;
      } else {
        let k = i;
        if (k + 1 < last && a.start[k + 1] < to) k = before(a.start, k, last, to);
        Levels.share(a, sums, i, k, from, to, shares);
        const isIn = gap < b.begin[rank + 1] && b.start[gap] < to;
        const rest = isIn ? idle(target, b.cause[gap], lit) : target.colours.ground;
        stack(target, timeline, shares, step, i, k, rest, left, y0, y1);
        ++x;
      }
    }
  }

  const idle = (target, cause, lit) => (lit ? target.colours.dimCauses : target.colours.causes)[cause];

  function colourOf(target, timeline, i) {
    const shade = Math.min(timeline.model.chunk[i], Theme.SHADES - 1);
    const isLit = !timeline.lit || timeline.lit[i] === 1;
    return (isLit ? target.colours.looks : target.colours.dim)[timeline.model.actions.look[i]][shade];
  }

  function action(target, timeline, i, x0, x1, y0, y1) {
    const wide = x1 - x0 >= SEPARATE * target.ratio;
    fill(target, x0, wide ? x1 - 1 : x1, y0, y1, colourOf(target, timeline, i));
    const other = timeline.model.actions.partner.get(i);
    if (!other) return;
    // An overlapped pair: its forward above, its backward below.
    const known = Math.max(0, Model.LOOKS.indexOf(timeline.model.facts.kinds[other.kind]));
    const own = Math.max(0, Model.LOOKS.indexOf(timeline.model.facts.kinds[timeline.model.actions.kind[i]]));
    const isLit = !timeline.lit || timeline.lit[i] === 1;
    const looks = isLit ? target.colours.looks : target.colours.dim;
    const middle = (y0 + y1) >> 1, end = wide ? x1 - 1 : x1;
    fill(target, x0, end, y0, middle, looks[own][0]);
    fill(target, x0, end, middle, y1, looks[known][0]);
  }

  /// One column that is shared: as tall as each look's share, the rest idle; of two neighbours the
  /// longer one.
  function stack(target, timeline, shares, step, i, k, rest, x, y0, y1) {
    const a = timeline.model.actions;
    let busy = 0, most = 0;
    for (let look = 0; look < shares.length; ++look) {
      busy += shares[look];
      if (shares[look] > shares[most]) most = look;
    }
    const anyLit = timeline.lit ? litIn(timeline.lit, i, k) : true;
    const looks = anyLit ? target.colours.looks : target.colours.dim;
    if (k - i < 2) {
      const longer = k > i && a.look[k] === most ? k : i;
      fill(target, x, x + 1, y0, y1,
           busy * 2 < step ? rest : looks[most][Math.min(timeline.model.chunk[longer], Theme.SHADES - 1)]);
      return;
    }
    let y = y0;
    for (let look = 0, sum = 0; look < shares.length; ++look) {
      sum += Math.max(0, shares[look]);
      const until = Math.min(y1, y0 + Math.round((y1 - y0) * sum / step));
      if (until > y) fill(target, x, x + 1, y, until, looks[look][0]);
      y = Math.max(y, until);
    }
    fill(target, x, x + 1, y, y1, rest);
  }

  function litIn(lit, i, k) {
    for (let n = i; n <= k; ++n) if (lit[n] === 1) return true;
    return false;
  }

  /// Messages on their way to the rank, and the collectives that it takes part in.
  function lane(target, timeline, view, rank, top) {
    const {model} = timeline, m = model.messages, own = model.received[rank];
    const [y0, y1] = rows(target, top + 1, view.lane() - 1);
    if (y1 <= y0) return;
    const place = (time) => target.left + (time - view.from) / target.perPixel;
    let drawn = target.left;  // up to here: of several in one pixel the first is seen
    const draw = (start, end, colour) => {
      if (end < view.from || start > view.to) return;
      const x0 = Math.max(drawn, Math.floor(place(start)));
      const x1 = Math.min(target.width, Math.max(Math.floor(place(start)) + 1, Math.floor(place(end))));
      if (x1 > x0) fill(target, x0, x1, y0, y1, colour);
      drawn = Math.max(drawn, x1);
    };
    for (let n = firstMoving(m, own, view.from, timeline.longestMessage); n < own.length; ++n) {
      const row = own[n];
      if (m.moving[row] > view.to) break;
      if (m.end[row] > m.moving[row]) draw(m.moving[row], m.end[row],
        isGradient(model, row) ? target.colours.gradientPixel : target.colours.activationPixel);
    }
    drawn = target.left;
    for (const row of timeline.membersOf[rank])
      draw(model.members.start[row], model.members.end[row], target.colours.collectivePixel);
  }

  const isGradient = (model, row) => model.facts.kinds[model.messages.kind[row]] === "SEND_B";

  function firstMoving(m, own, time, longest) {
    let low = 0, high = own.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (m.moving[own[middle]] < time - longest) low = middle + 1; else high = middle;
    }
    return low;
  }

  /// What is held, as tall as its part of the most that any rank holds; each column shows its most.
  function strip(target, timeline, view, rank, top) {
    const {memory} = timeline.model, levels = timeline.maxima;
    const [y0, y1] = rows(target, top + 1, view.strip() - 1);
    if (memory.most <= 0 || y1 <= y0) return;
    const from = memory.begin[rank], to = memory.begin[rank + 1];
    const draw = (x0, x1, top) => fill(target, x0, x1, top, y1, target.colours.memory);
    let i = from, since = target.left, height = y1;
    for (let x = target.left; x < target.width; ++x) {
      const begin = view.from + (x - target.left) * target.perPixel, end = begin + target.perPixel;
      while (i + 1 < to && memory.time[i + 1] <= begin) i = jump(memory.time, i, to, begin);
      let k = i;
      if (k + 1 < to && memory.time[k + 1] < end) k = before(memory.time, k, to, end);
      const own = y1 - Math.round((y1 - y0) * Levels.most(levels, i, k) / memory.most);
      if (own === height) continue;
      draw(since, x, height);
      since = x;
      height = own;
    }
    draw(since, target.width, height);
  }

  const NEAR = 6;  // so many neighbours are looked at one by one before a search begins

  /// The last step at or before a time, and the last one before it.
  function jump(time, low, high, at) {
    for (const near = low + NEAR; low < near; ++low) if (low + 1 >= high || time[low + 1] > at) return low;
    while (low + 1 < high) {
      const middle = (low + high) >>> 1;
      if (time[middle] <= at) low = middle; else high = middle;
    }
    return low;
  }
  function before(time, low, high, at) {
    for (const near = low + NEAR; low < near; ++low) if (low + 1 >= high || time[low + 1] >= at) return low;
    while (low + 1 < high) {
      const middle = (low + high) >>> 1;
      if (time[middle] < at) low = middle; else high = middle;
    }
    return low;
  }

  return {paint, isGradient, stepAt: jump};
})();
