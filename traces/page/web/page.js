"use strict";
// The page as a whole: what is shown (the scene), when it is drawn, and the commands that keys,
// buttons and the mouse give.

const Page = (() => {
  const byId = (id) => document.getElementById(id);
  const TOGGLES = {path: "showPath", arrows: "showArrows", difference: "showDifference"};
  const VIEW_TOGGLES = {memory: "showMemory", lanes: "showMessages"};
  let scene, view, bars, over, overview, frameAsked = false, barsStale = true, overviewImage = null;
  let data, loaded = [];

  function timelineOf(model) {
    const membersOf = Array.from({length: model.ranks}, () => []);
    model.members.rank.forEach((rank, i) => membersOf[rank].push(i));
    let longest = 0;
    for (let m = 0; m < model.messages.count; ++m)
      longest = Math.max(longest, model.messages.end[m] - model.messages.moving[m]);
    return {model, sums: Levels.sumsOf(model.actions), maxima: Levels.maximaOf(model.memory.value),
            longestMessage: longest, membersOf, lit: null};
  }

  /// Read when it is first asked for: a page may hold more timelines than it shows at once.
  async function load(n) {
    if (!loaded[n]) {
      const facts = data.timelines[n];
      const columns = await Decode.columns(facts.columns, byId(`columns-${n}`).textContent.trim());
      loaded[n] = timelineOf(Model.build(facts, columns));
    }
    return loaded[n];
  }

  /// The timelines with these numbers and nothing else; one or two.
  async function show(numbers) {
    const timelines = [];
    for (const n of numbers) timelines.push(await load(n));
    scene = {timelines, numbers, selected: null, hovered: null, followed: null, found: null,
             foundAt: -1, showPath: false, showArrows: false, tooMany: false,
             showDifference: true};
    const models = timelines.map((each) => each.model);
    view = View.make(models);
    view.showMemory = models.some((model) => model.memory.most > 0);
    Model.shareScale(models);
    document.querySelector('[data-do="difference"]').hidden = !models[0].actions.other;
    for (const each of timelines) each.lit = null;
  }

  /// Other timelines of a page that offers several.
  async function choose(numbers) {
    await show(numbers);
    byId("query").value = "";
    say("");
    setHeight();
    resize();
    view.fitRows();
    showToggles();
    recolour();
    select(null);
    paintNow();
  }

  async function start() {
    data = JSON.parse(byId("facts").textContent);
    if (data.timelines.length === 0) {
      document.documentElement.dataset.still = "1";
      document.documentElement.dataset.ready = "1";
      return;
    }
    bars = byId("bars").getContext("2d", {alpha: false});
    over = byId("over").getContext("2d");
    overview = byId("overview").getContext("2d");
    await show(data.one_of_them ? [0] : data.timelines.map((_, n) => n));
    Theme.read();
    Input.attach(api);
    Choose.attach(api);
    setHeight();
    new ResizeObserver(resize).observe(byId("chart"));
    addEventListener("resize", setHeight);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    addEventListener("beforeprint", () => { document.documentElement.dataset.print = "1"; paintNow(Theme.choose("light")); });
    addEventListener("afterprint", () => { delete document.documentElement.dataset.print; delete document.documentElement.dataset.theme; recolour(); });
    resize();
    view.fitRows();
    showToggles();
    recolour();
    paintNow();
    document.documentElement.dataset.ready = "1";
  }

  /// As tall as comfortable rows need, but never so tall that the tools or the details are out of view.
  function setHeight() {
    const bar = view.bar;
    view.bar = 30;
    const wished = view.contentHeight() + View.AXIS + 4;
    view.bar = bar;
    byId("chart").style.height = `${Math.round(Math.min(Math.max(wished, 160), innerHeight * 0.7))}px`;
  }

  function resize() {
    const box = byId("chart").getBoundingClientRect(), ratio = devicePixelRatio || 1;
    view.width = Math.max(200, Math.floor(box.width));
    view.height = Math.max(120, Math.floor(box.height));
    const width = Math.round(view.width * ratio), height = Math.round(view.height * ratio);
    for (const canvas of [bars.canvas, over.canvas]) {
      if (canvas.width === width && canvas.height === height) continue;  // to set it empties it
      canvas.width = width;
      canvas.height = height;
    }
    overview.canvas.width = view.width;
    overview.canvas.height = 26;
    overviewImage = null;
    view.clamp();
    redraw();
  }

  function recolour() {
    Theme.read();
    Legend.fill(byId("legend"), scene);
    overviewImage = null;
    redraw();
  }

  /// Everything at the next frame; with `onlyOver` what lies over the bars.
  function redraw(onlyOver = false) {
    if (!onlyOver) barsStale = true;
    if (frameAsked) return;
    frameAsked = true;
    requestAnimationFrame(() => paintNow());
  }

  function paintNow() {
    frameAsked = false;
    const ratio = devicePixelRatio || 1;
    if (barsStale) {
      bars.setTransform(1, 0, 0, 1, 0, 0);
      Paint.paint(bars, scene, view, ratio);
      bars.setTransform(ratio, 0, 0, ratio, 0, 0);
      Labels.draw(bars, scene, view);
      barsStale = false;
      drawOverview();
    }
    over.setTransform(ratio, 0, 0, ratio, 0, 0);
    const tooMany = Overlay.draw(over, scene, view);
    if (tooMany !== scene.tooMany) say(tooMany ? "arrows: zoom in" : "");
    scene.tooMany = tooMany;
  }

  function drawOverview() {
    overviewImage = overviewImage || Overview.image(overview, scene.timelines[0], view);
    Overview.draw(overview, overviewImage, view);
  }

  // --- Commands ---

  function select(mark, show = false) {
    scene.selected = mark;
    const details = byId("details");
    if (mark) {
      Describe.show(details, Describe.lines(scene, mark));
    } else {
      details.textContent = "Point at something, or click it. Press ? for the keys.";
    }
    if (mark && show && mark.what === "action") {
      const a = scene.timelines[mark.row].model.actions, i = mark.number;
      view.show(a.rank[i], a.start[i], a.end[i]);
    }
    redraw(!show);
  }

  function hover(mark) {
    const same = mark && scene.hovered && mark.what === scene.hovered.what &&
                 mark.number === scene.hovered.number && mark.row === scene.hovered.row;
    if (same || (!mark && !scene.hovered)) return false;
    scene.hovered = mark;
    redraw(true);
    return true;
  }

  /// What is at a place of the chart; null if nothing.
  function markAt(x, y) {
    const rank = view.rankAt(y);
    if (rank < 0 || x < View.GUTTER) return null;
    const row = Math.max(0, view.rowAt(y, rank)), {model} = scene.timelines[row];
    if (rank >= model.ranks) return null;
    const inside = y - view.top(rank, row), time = view.time(x);
    if (inside >= view.bar + view.lane() && view.showMemory) {
      const m = model.memory;
      return {what: "memory", row, rank, number: Paint.stepAt(m.time, m.begin[rank], m.begin[rank + 1], time)};
    }
    if (time >= model.makespan) return stands(model, rank) ? {what: "stuck", row, rank, number: rank} : null;
    const action = Model.actionAt(model, rank, time);
    if (action >= 0) return {what: "action", row, rank, number: action};
    const bubble = Model.bubbleAt(model, rank, time);
    if (bubble < 0) return null;
    const isStuck = model.facts.causes[model.bubbles.cause[bubble]] === "stuck";
    return isStuck ? {what: "stuck", row, rank, number: rank} : {what: "bubble", row, rank, number: bubble};
  }

  const stands = (model, rank) => model.facts.stuck.some((each) => each.rank === rank);

  function light() {
    for (const each of scene.timelines) {
      const a = each.model.actions;
      each.lit = null;
      if (scene.followed === null && !scene.found) continue;
      each.lit = new Uint8Array(a.count);
      if (scene.followed !== null) {
        for (let i = 0; i < a.count; ++i)
          each.lit[i] = a.microBatch[i] === scene.followed && a.look[i] < 5 ||
                        (a.partner.has(i) && a.partner.get(i).microBatch === scene.followed) ? 1 : 0;
      } else if (each === scene.timelines[0]) {
        for (const i of scene.found) each.lit[i] = 1;
      }
    }
    redraw();
  }

  function follow() {
    const mark = scene.selected;
    const isAction = mark && mark.what === "action";
    const own = isAction ? scene.timelines[mark.row].model.actions.microBatch[mark.number] : null;
    scene.followed = scene.followed === own ? null : own;
    say(scene.followed === null ? "" : `following micro-batch ${scene.followed}`);
    light();
  }

  function find(query) {
    scene.followed = null;
    scene.found = query.trim() === "" ? null : Search.find(scene.timelines[0].model, query);
    scene.foundAt = -1;
    if (query.trim() !== "" && scene.found === null) say("not understood: try B3, 2F5, m5, s2, rank 1");
    else say(scene.found ? `${scene.found.length} found` : "");
    if (scene.found && scene.found.length > 0) next(1);
    light();
  }

  function next(by) {
    if (!scene.found || scene.found.length === 0) return;
    const count = scene.found.length;
    scene.foundAt = (scene.foundAt + by + count) % count;
    say(`${scene.foundAt + 1} of ${count}`);
    selectAction(0, scene.found[scene.foundAt]);
  }

  function selectAction(row, number) {
    const rank = scene.timelines[row].model.actions.rank[number];
    select({what: "action", row, rank, number}, true);
  }

  /// The neighbour of the selected action: on its rank, or along its messages.
  function step(way) {
    const mark = scene.selected && scene.selected.what === "action" ? scene.selected : null;
    const row = mark ? mark.row : 0, {model} = scene.timelines[row], a = model.actions;
    if (!mark) return a.count > 0 && selectAction(row, 0);
    const i = mark.number;
    let to = -1;
    if (way === "before" && i > a.begin[a.rank[i]]) to = i - 1;
    if (way === "after" && i + 1 < a.begin[a.rank[i] + 1]) to = i + 1;
    if (way === "input") for (const m of model.takenBy.of(i)) to = model.messages.producer[m] - 1;
    if (way === "output") for (const m of model.sentBy.of(i)) to = model.messages.consumer[m] - 1;
    return to >= 0 && selectAction(row, to);
  }

  function toggle(name) {
    if (TOGGLES[name]) scene[TOGGLES[name]] = !scene[TOGGLES[name]];
    if (VIEW_TOGGLES[name]) {
      view[VIEW_TOGGLES[name]] = !view[VIEW_TOGGLES[name]];
      view.fitRows();
    }
    showToggles();
    redraw();
  }

  function showToggles() {
    const pressed = {path: scene.showPath, arrows: scene.showArrows, difference: scene.showDifference, memory: view.showMemory,
                     lanes: view.showMessages};
    for (const [name, on] of Object.entries(pressed))
      document.querySelector(`[data-do="${name}"]`).setAttribute("aria-pressed", String(on));
  }

  function clear() {
    scene.found = scene.followed = null;
    byId("query").value = "";
    say("");
    select(null);
    light();
  }

  const say = (text) => { byId("said").textContent = text; };

  const api = {
    byId, choose, markAt, hover, select, follow, find, next, step, toggle, clear, redraw, light,
    describe: (mark) => Describe.lines(scene, mark),
    view: () => view, scene: () => scene,
    change: (what) => { what(view); byId("tip").hidden = true; redraw(); },
    theme: () => { Theme.toggle(); recolour(); },
    zoomToSelected: () => {
      const mark = scene.selected;
      if (!mark || mark.what !== "action") return;
      const a = scene.timelines[mark.row].model.actions, i = mark.number, span = Math.max(1, a.end[i] - a.start[i]);
      view.from = a.start[i] - 3 * span;
      view.to = a.end[i] + 3 * span;
      view.clamp();
      view.show(a.rank[i], a.start[i], a.end[i]);
      redraw();
    },
    paintNow: () => { barsStale = true; paintNow(); },
  };
  return {start, api};
})();
