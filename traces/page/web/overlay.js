"use strict";
// What lies over the bars: arrows of messages, the critical path, what is selected or pointed at, and
// the cycle of a step that got stuck.

const Overlay = (() => {
  const MOST_ARROWS = 600;

  /// Whether arrows that were asked for are too many to be drawn.
  function draw(context, scene, view) {
    let tooMany = false;
    context.clearRect(0, 0, view.width, view.height);
    context.save();
    context.beginPath();
    context.rect(View.GUTTER, View.AXIS, view.plot(), view.height - View.AXIS);
    context.clip();
    scene.timelines.forEach((timeline, row) => {
      if (scene.showArrows && !allArrows(context, timeline, view, row)) tooMany = true;
      if (scene.followed !== null) followed(context, timeline, view, row, scene.followed);
      if (scene.showPath) path(context, timeline, view, row);
      if (scene.showDifference) differences(context, scene, view, row);
      stuck(context, timeline, view, row);
      peaks(context, timeline, view, row);
    });
    marked(context, scene, view, scene.hovered, Theme.colours().quiet, 1);
    marked(context, scene, view, scene.selected, Theme.colours().accent, 2);
    context.restore();
    return tooMany;
  }

  const middle = (view, rank, row) => view.top(rank, row) + view.bar / 2;

  function arrow(context, view, x0, y0, x1, y1) {
    const bend = Math.min(40, Math.max(6, Math.abs(x1 - x0) / 2));
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1 + 1, y1);
    context.lineTo(x1 - 5, y1 - 3);
    context.lineTo(x1 - 5, y1 + 3);
    context.fill();
  }

  /// From where its data leaves the sender to where the receiver has it.
  function message(context, timeline, view, row, m) {
    const msgs = timeline.model.messages, colours = Theme.colours();
    context.strokeStyle = context.fillStyle =
      Paint.isGradient(timeline.model, m) ? colours.gradient : colours.activation;
    arrow(context, view, view.x(msgs.moving[m]), middle(view, msgs.from[m], row),
          view.x(msgs.end[m]), middle(view, msgs.to[m], row));
  }

  /// Those in view, unless they are so many that they would hide the bars.
  function allArrows(context, timeline, view, row) {
    const {model} = timeline, msgs = model.messages, seen = [];
    for (let rank = 0; rank < model.ranks; ++rank) {
      const top = view.top(rank, row);
      if (top > view.height || top + view.pitch() < View.AXIS) continue;
      for (const m of model.received[rank]) {
        if (msgs.moving[m] > view.to) break;
        if (msgs.end[m] >= view.from) seen.push(m);
        if (seen.length > MOST_ARROWS) return false;
      }
    }
    context.lineWidth = 1;
    context.globalAlpha = 0.75;
    for (const m of seen) message(context, timeline, view, row, m);
    context.globalAlpha = 1;
    return true;
  }

  function followed(context, timeline, view, row, microBatch) {
    const msgs = timeline.model.messages;
    context.lineWidth = 1.5;
    for (let m = 0; m < msgs.count; ++m) {
      if (msgs.microBatch[m] !== microBatch || msgs.end[m] < view.from || msgs.moving[m] > view.to) continue;
      message(context, timeline, view, row, m);
    }
  }

  /// The rank at which a step of the path is.
  function rankOf(model, i) {
    const {path, actions, messages, members} = model, n = path.number[i] - 1;
    if (n < 0) return -1;
    if (path.row[i] === Model.ROW_ACTION) return actions.rank[n];
    if (path.row[i] === Model.ROW_MESSAGE) return messages.to[n];
    return members.rank[n];
  }

  function path(context, timeline, view, row) {
    const {model} = timeline, p = model.path, colours = Theme.colours();
    const first = Model.firstEndingAfter(p.end, 0, p.count, view.from);
    const edges = [];
    context.beginPath();
    let begun = false;
    for (let i = first; i < p.count && p.start[i] <= view.to; ++i) {
      // A message leads to where the path goes on.
      const isMessage = p.row[i] === Model.ROW_MESSAGE;
      const rank = isMessage && i + 1 < p.count ? rankOf(model, i + 1) : rankOf(model, i);
      if (rank < 0) continue;
      const y = middle(view, rank, row), x0 = view.x(p.start[i]), x1 = view.x(p.end[i]);
      if (!begun) context.moveTo(x0, y);
      begun = true;
      if (!isMessage) context.lineTo(x0, y);
      // Through an action whose name can be read no line goes: it gets one above and one below.
      const isWide = p.kind[i] === 0 && x1 - x0 > 6 && view.bar >= 8;
      if (isWide) edges.push([x0, x1, view.top(rank, row)]);
      if (isWide) context.moveTo(x1, y); else context.lineTo(x1, y);
    }
    for (const [x0, x1, top] of edges) {
      for (const y of [top, top + view.bar]) {
        context.moveTo(x0, y);
        context.lineTo(x1, y);
      }
    }
    context.lineJoin = "round";
    for (const [width, colour] of [[4, colours.groundText], [2, colours.path]]) {
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  /// What stands for good, to the end of the picture, and the arrows of the cycle.
  function stuck(context, timeline, view, row) {
    const {facts} = timeline.model, colours = Theme.colours();
    context.strokeStyle = context.fillStyle = colours.stuck;
    for (const each of facts.stuck) {
      const x0 = Math.max(view.x(Math.max(each.start_ns, facts.makespan_ns)), View.GUTTER);
      const y = view.top(each.rank, row), x1 = view.x(facts.end_ns);
      context.globalAlpha = 0.4;
      context.fillRect(x0, y, x1 - x0, view.bar);
      context.globalAlpha = 1;
    }
    const x = view.x(facts.makespan_ns + (facts.end_ns - facts.makespan_ns) * 0.5);
    context.lineWidth = 2;
    facts.cycle.forEach((step, n) => {
      const y0 = middle(view, step.rank, row), y1 = middle(view, step.other_rank, row);
      const side = n % 2 === 0 ? 14 : -14;
      context.beginPath();
      context.moveTo(x, y0);
      context.quadraticCurveTo(x + side, (y0 + y1) / 2, x, y1);
      context.stroke();
      const sign = Math.sign(y1 - y0) || 1;
      context.beginPath();
      context.moveTo(x, y1);
      context.lineTo(x - 5 + side / 4, y1 - 8 * sign);
      context.lineTo(x + 5 + side / 4, y1 - 8 * sign);
      context.fill();
      context.font = `11px ${Labels.FONT}`;
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.lineWidth = 3;
      context.strokeStyle = colours.groundText;
      context.strokeText(step.name, x - 10, y0);
      context.fillText(step.name, x - 10, y0);
      context.lineWidth = 2;
      context.strokeStyle = colours.stuck;
    });
  }

  /// A mark where each rank holds most.
  function peaks(context, timeline, view, row) {
    const {model} = timeline;
    if (!view.showMemory || view.strip() < 5 || model.memory.most <= 0) return;
    context.fillStyle = Theme.colours().peak;
    for (let rank = 0; rank < model.ranks; ++rank) {
      const peak = model.facts.peaks[rank], top = view.top(rank, row) + view.bar + view.lane() + 1;
      const value = model.memory.hasBytes ? peak.bytes : peak.activations;
      const y = top + (view.strip() - 1) * (1 - value / model.memory.most);
      const x = view.x(peak.at_ns);
      if (x >= View.GUTTER) context.fillRect(x - 1, y, 3, 3);
    }
  }

  // From half the duration in A on it takes its whole part of the bar; the name above stays readable.
  const MOST_DIFFERENCE = 0.5, PART_OF_BAR = 0.35;

  /// In B's bars, how much longer (red) or shorter (blue) an action is than in A.
  function differences(context, scene, view, row) {
    const {actions} = scene.timelines[row].model, from = scene.timelines[0].model.actions;
    if (row === 0 || !actions.other) return;
    const colours = Theme.colours();
    for (let rank = 0; rank + 1 < actions.begin.length; ++rank) {
      const top = view.top(rank, row), last = actions.begin[rank + 1];
      if (top > view.height || top + view.bar < View.AXIS) continue;
      const first = Model.firstEndingAfter(actions.end, actions.begin[rank], last, view.from);
      for (let i = first; i < last && actions.start[i] < view.to; ++i) {
        const n = actions.other[i] - 1, width = (actions.end[i] - actions.start[i]) / view.perPixel();
        if (n < 0 || width < 1) continue;
        const was = from.end[n] - from.start[n], longer = actions.end[i] - actions.start[i] - was;
        const part = PART_OF_BAR * Math.min(1, Math.abs(longer) / Math.max(1, was) / MOST_DIFFERENCE);
        context.fillStyle = longer > 0 ? colours.longer : colours.shorter;
        context.fillRect(view.x(actions.start[i]), top + view.bar * (1 - part), Math.max(1, width - 1), view.bar * part);
      }
    }
  }

  /// The same action in the other timeline.
  function counterpart(context, scene, view, row, i, colour) {
    const a = scene.timelines[row].model.actions, x0 = view.x(a.start[i]);
    context.strokeStyle = colour;
    context.setLineDash([3, 2]);
    context.strokeRect(x0 - 0.5, view.top(a.rank[i], row) - 0.5, Math.max(2, view.x(a.end[i]) - x0), view.bar + 1);
    context.setLineDash([]);
  }

  /// An action with its messages; of a bubble its frame and what it waits for.
  function marked(context, scene, view, mark, colour, width) {
    if (!mark) return;
    const timeline = scene.timelines[mark.row], {model} = timeline;
    const frame = (start, end, rank) => {
      const x0 = view.x(start);
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(x0 - 0.5, view.top(rank, mark.row) - 0.5, Math.max(2, view.x(end) - x0), view.bar + 1);
    };
    if (mark.what === "action") {
      const a = model.actions, i = mark.number;
      context.lineWidth = 1.5;
      for (const m of model.takenBy.of(i)) message(context, timeline, view, mark.row, m);
      for (const m of model.sentBy.of(i)) message(context, timeline, view, mark.row, m);
      frame(a.start[i], a.end[i], a.rank[i]);
      if (a.other && a.other[i] > 0) counterpart(context, scene, view, 1 - mark.row, a.other[i] - 1, colour);
    } else if (mark.what === "bubble") {
      const b = model.bubbles, i = mark.number, n = b.forNumber[i] - 1;
      frame(b.start[i], b.end[i], mark.rank);
      if (b.forRow[i] === Model.ROW_ACTION) frame(model.actions.start[n], model.actions.end[n], model.actions.rank[n]);
      if (b.forRow[i] === Model.ROW_MESSAGE) message(context, timeline, view, mark.row, n);
    }
  }

  return {draw, rankOf};
})();
