"use strict";
// What of the timeline is seen: a range of time, how tall ranks are, and how far they are scrolled.

const View = (() => {
  const GUTTER = 74;       // pixels at the left for the names of ranks
  const AXIS = 22;         // at the top, for the times
  const LEAST_SPAN = 20;   // ns, across the whole width

  /// Of models that are drawn one below the other for each rank; one or two.
  function make(models) {
    const most = (of) => Math.max(...models.map(of)), end = most((model) => model.end);
    const view = {
      from: 0, to: end, end, ranks: most((model) => model.ranks), rowsOfRank: models.length,
      width: 800, height: 400, scroll: 0, bar: 20, showMemory: true, showMessages: true,
    };

    view.plot = () => Math.max(1, view.width - GUTTER);
    view.perPixel = () => (view.to - view.from) / view.plot();
    view.x = (time) => GUTTER + (time - view.from) / view.perPixel();
    view.time = (x) => view.from + (x - GUTTER) * view.perPixel();

    // A rank's row from the top: the bar, the lane of messages, the strip of memory, a gap; with two
    // timelines a bar and a lane for each.
    view.lane = () => view.showMessages ? Math.max(2, Math.min(7, Math.round(view.bar / 4))) : 0;
    view.strip = () => view.showMemory ? Math.max(3, Math.round(view.bar * 0.7)) : 0;
    view.gap = () => Math.max(1, Math.min(8, Math.round(view.bar / 4)));
    view.one = () => view.bar + view.lane() + view.strip();
    view.pitch = () => view.rowsOfRank * view.one() + (view.rowsOfRank - 1) + view.gap();
    view.top = (rank, row = 0) => AXIS + rank * view.pitch() + row * (view.one() + 1) - view.scroll;
    view.contentHeight = () => view.ranks * view.pitch();
    view.rankAt = (y) => {
      const rank = Math.floor((y - AXIS + view.scroll) / view.pitch());
      return rank >= 0 && rank < view.ranks && y >= AXIS ? rank : -1;
    };
    view.rowAt = (y, rank) => Math.min(view.rowsOfRank - 1,
      Math.floor((y - view.top(rank)) / (view.one() + 1)));

    view.clamp = () => {
      const span = Math.min(Math.max(view.to - view.from, LEAST_SPAN), view.end);
      view.from = Math.min(Math.max(0, view.from), view.end - span);
      view.to = view.from + span;
      const most = Math.max(0, view.contentHeight() - (view.height - AXIS));
      view.scroll = Math.round(Math.min(Math.max(0, view.scroll), most));
    };
    view.zoom = (factor, x = GUTTER + view.plot() / 2) => {
      const at = view.time(x), part = (x - GUTTER) / view.plot();
      const span = Math.min(Math.max((view.to - view.from) * factor, LEAST_SPAN), view.end);
      view.from = at - part * span;
      view.to = view.from + span;
      view.clamp();
    };
    view.pan = (dx, dy = 0) => {
      const span = view.to - view.from;
      view.from += dx * view.perPixel();
      view.to = view.from + span;
      view.scroll += dy;
      view.clamp();
    };
    view.fit = () => { view.from = 0; view.to = view.end; view.clamp(); };
    /// Rows as tall as all ranks need to be seen at once, but not so low that they cannot be read.
    view.fitRows = () => {
      for (view.bar = 30; view.bar > 4 && view.contentHeight() > view.height - AXIS; --view.bar);
      view.clamp();
    };
    view.setBar = (bar, y = view.height / 2) => {
      const part = (y - AXIS + view.scroll) / view.pitch();
      view.bar = Math.round(Math.min(Math.max(bar, 3), 60));
      view.scroll = part * view.pitch() - (y - AXIS);
      view.clamp();
    };
    /// Brings a moment of a rank into view, with room around it.
    view.show = (rank, start, end) => {
      const span = view.to - view.from;
      if (end - start > span) {
        view.zoom((end - start) * 1.5 / span);
        view.from = start - (end - start) * 0.25;
        view.to = view.from + (end - start) * 1.5;
      } else if (start < view.from || end > view.to) {
        view.from = (start + end - span) / 2;
        view.to = view.from + span;
      }
      const top = view.top(rank) + view.scroll - AXIS;
      if (top < view.scroll || top + view.pitch() > view.scroll + view.height - AXIS)
        view.scroll = top - (view.height - AXIS - view.pitch()) / 2;
      view.clamp();
    };
    return view;
  }

  return {GUTTER, AXIS, make};
})();
