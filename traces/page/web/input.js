"use strict";
// Keys, buttons and the mouse.

const Input = (() => {
  const KEYS = {
    "+": (p) => p.change((v) => v.zoom(0.7)), "=": (p) => p.change((v) => v.zoom(0.7)),
    "-": (p) => p.change((v) => v.zoom(1 / 0.7)),
    "0": (p) => p.change((v) => { v.fit(); v.fitRows(); }),
    ArrowLeft: (p) => p.change((v) => v.pan(-v.plot() / 8)),
    ArrowRight: (p) => p.change((v) => v.pan(v.plot() / 8)),
    ArrowUp: (p) => p.change((v) => v.pan(0, -v.pitch())),
    ArrowDown: (p) => p.change((v) => v.pan(0, v.pitch())),
    Home: (p) => p.change((v) => v.pan(-v.end / v.perPixel())),
    End: (p) => p.change((v) => v.pan(v.end / v.perPixel())),
    "[": (p) => p.change((v) => v.setBar(v.bar - Math.max(1, v.bar * 0.2))),
    "]": (p) => p.change((v) => v.setBar(v.bar + Math.max(1, v.bar * 0.2))),
    "/": (p) => p.byId("query").select(),
    n: (p) => p.next(1), N: (p) => p.next(-1),
    ",": (p) => p.step("before"), ".": (p) => p.step("after"),
    i: (p) => p.step("input"), o: (p) => p.step("output"),
    f: (p) => p.follow(), p: (p) => p.toggle("path"), a: (p) => p.toggle("arrows"), d: (p) => p.toggle("difference"),
    m: (p) => p.toggle("memory"), l: (p) => p.toggle("lanes"), t: (p) => p.theme(),
    Enter: (p) => p.zoomToSelected(), Escape: (p) => escape(p), "?": (p) => help(p),
  };
  const BUTTONS = {
    in: "+", out: "-", fit: "0", path: "p", arrows: "a", difference: "d", memory: "m", lanes: "l", theme: "t",
    follow: "f", help: "?", taller: "]", lower: "[",
  };

  function escape(page) {
    page.byId("help").hidden = true;
    page.clear();
  }

  function help(page) {
    const panel = page.byId("help");
    panel.hidden = !panel.hidden;
  }

  function attach(page) {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const writes = event.target instanceof HTMLInputElement;
      if (writes && event.key === "Escape") event.target.blur();
      if ((writes && event.key !== "Escape") || !KEYS[event.key]) return;
      if (event.key === "Enter" && event.target instanceof HTMLButtonElement) return;
      event.preventDefault();
      KEYS[event.key](page);
    });
    for (const button of document.querySelectorAll("[data-do]"))
      button.addEventListener("click", () => KEYS[BUTTONS[button.dataset.do]](page));
    const query = page.byId("query");
    query.addEventListener("input", () => page.find(query.value));
    query.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      page.next(event.shiftKey ? -1 : 1);
    });
    mouse(page);
    overview(page);
  }

  function mouse(page) {
    const chart = page.byId("chart"), tip = page.byId("tip");
    let drag = null;
    const place = (event) => {
      const box = chart.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    chart.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = place(event), unit = event.deltaMode === 1 ? 16 : 1;
      const dx = event.deltaX * unit, dy = event.deltaY * unit;
      page.change((view) => {
        if (x < View.GUTTER) view.pan(0, dy);
        else if (event.altKey) view.setBar(view.bar * (dy > 0 ? 0.85 : 1.18), y);
        else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) view.pan(event.shiftKey ? dx + dy : dx);
        else view.zoom(Math.exp(Math.max(-200, Math.min(200, dy)) * 0.0025), x);
      });
    }, {passive: false});
    chart.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      drag = {x, y, moved: false};
      chart.setPointerCapture(event.pointerId);
    });
    chart.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (drag) {
        drag.moved = drag.moved || Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3;
        if (drag.moved) page.change((view) => view.pan(drag.x - x, drag.y - y));
        if (drag.moved) [drag.x, drag.y] = [x, y];
        return;
      }
      point(page, tip, chart, x, y);
    });
    chart.addEventListener("pointerup", (event) => {
      const wasClick = drag && !drag.moved;
      drag = null;
      if (wasClick) page.select(page.markAt(...place(event)));
    });
    chart.addEventListener("dblclick", () => page.zoomToSelected());
    chart.addEventListener("pointerleave", () => { tip.hidden = true; page.hover(null); });
  }

  function point(page, tip, chart, x, y) {
    const mark = page.markAt(x, y);
    if (page.hover(mark) && mark) Describe.show(tip, page.describe(mark));
    tip.hidden = !mark;
    if (!mark) return;
    const left = x + 16 + tip.offsetWidth > chart.clientWidth ? x - tip.offsetWidth - 12 : x + 16;
    const below = chart.getBoundingClientRect().top + y + 18 + tip.offsetHeight <= innerHeight;
    const top = below ? y + 18 : y - tip.offsetHeight - 10;
    tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }

  function overview(page) {
    const canvas = page.byId("overview");
    const go = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      page.change((view) => {
        const span = view.to - view.from;
        view.from = view.end * (x - View.GUTTER) / view.plot() - span / 2;
        view.to = view.from + span;
        view.clamp();
      });
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); go(event); });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); });
  }

  return {attach};
})();
