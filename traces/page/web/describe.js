"use strict";
// What is said of something that is pointed at: a title and lines, each a label and a text.

const Describe = (() => {
  function lines(scene, mark) {
    const timeline = scene.timelines[mark.row], {model} = timeline;
    const of = {action, bubble, memory, stuck}[mark.what](model, mark);
    if (scene.timelines.length > 1) of.title = `${"AB"[mark.row]}: ${of.title}`;
    if (mark.what === "action" && model.actions.other) of.lines.push(other(scene, mark));
    return of;
  }

  /// The same action in the other timeline, and what is different there.
  function other(scene, mark) {
    const name = "BA"[mark.row], here = scene.timelines[mark.row].model.actions;
    const there = scene.timelines[1 - mark.row].model.actions, row = here.other[mark.number] - 1;
    if (row < 0) return [`in ${name}`, "there is none"];
    const own = here.end[mark.number] - here.start[mark.number], its = there.end[row] - there.start[row];
    const signed = (ns) => `${ns < 0 ? "−" : "+"}${Units.time(Math.abs(ns))}`;
    const share = own > 0 ? ` (${its < own ? "−" : "+"}${Units.percent(Math.abs(its - own) / own)})` : "";
    const later = there.start[row] - here.start[mark.number];
    return [`in ${name}`, `${Units.time(its)}, ${signed(its - own)}${share}; begins ${signed(later)}`];
  }

  const between = (start, end) => `${Units.time(start)} to ${Units.time(end)}`;

  /// "B m2 s3 on rank 3", "the message of F m4 s0 from rank 0", "REDUCE_GRAD".
  function reference(model, row, number) {
    const i = number - 1;
    if (row === Model.ROW_ACTION) return `${Model.nameOf(model, i)} on ${Model.rankName(model, model.actions.rank[i])}`;
    if (row === Model.ROW_MESSAGE) return messageText(model, i);
    if (row === Model.ROW_MEMBER) return `${model.facts.kinds[model.members.kind[i]]} s${model.members.stage[i]}`;
    return "";
  }

  function messageText(model, m) {
    const msgs = model.messages, kind = Paint.isGradient(model, m) ? "gradient" : "activation";
    const what = model.facts.kinds[msgs.kind[m]] === "SEND" ? "message" : `${kind} m${msgs.microBatch[m]}`;
    return `${what} from ${Model.rankName(model, msgs.from[m])} to ${Model.rankName(model, msgs.to[m])}`;
  }

  function cause(model, b) {
    const text = model.facts.causes[model.bubbles.cause[b]];
    const whom = reference(model, model.bubbles.forRow[b], model.bubbles.forNumber[b]);
    return `${Units.time(model.bubbles.end[b] - model.bubbles.start[b])} ${text}${whom ? `: ${whom}` : ""}`;
  }

  /// Where the time of bubbles from `first` to before `last` comes from, the most first: "2 ms straggler: F m3 s1
  /// on rank 0". Nothing that their causes have said already.
  function roots(model, first, last) {
    if (!model.roots) return [];
    const {begin, length, cause: causes, row, number} = model.roots, sums = new Map();
    let isNew = false;
    for (let b = first; b < last; ++b) {
      for (let i = begin[b]; i < begin[b + 1]; ++i) {
        const whom = reference(model, row[i], number[i]);
        const text = `${model.facts.root_causes[causes[i]]}${whom ? `: ${whom}` : ""}`;
        sums.set(text, (sums.get(text) || 0) + length[i]);
        if (number[i] > 0 && (row[i] !== model.bubbles.forRow[b] || number[i] !== model.bubbles.forNumber[b])) isNew = true;
      }
    }
    if (!isNew && sums.size < 2) return [];
    const MOST = 4, sorted = [...sums].sort((x, y) => y[1] - x[1]);
    const said = sorted.slice(0, MOST).map(([text, ns], n) => [n === 0 ? "in the end" : "", `${Units.time(ns)} ${text}`]);
    if (sorted.length > MOST) {
      const rest = sorted.slice(MOST).reduce((sum, [, ns]) => sum + ns, 0);
      said.push(["", `${Units.time(rest)} of ${sorted.length - MOST} others`]);
    }
    return said;
  }

  function action(model, mark) {
    const a = model.actions, i = mark.number, said = [];
    said.push(["time", `${Units.time(a.end[i] - a.start[i])}, ${between(a.start[i], a.end[i])}`]);
    const b = model.bubbles, first = b.firstOf[i];
    let last = first;
    for (; last >= 0 && last < b.count && b.waiting[last] === i + 1; ++last)
      said.push([last === first ? "waited" : "", cause(model, last)]);
    if (first < 0) said.push(["waited", "no: it began when the one before it ended"]);
    else said.push(...roots(model, first, last));
    for (const m of model.takenBy.of(i)) said.push(["input", transfer(model, m)]);
    for (const m of model.sentBy.of(i)) said.push(["output", transfer(model, m)]);
    if (model.path.isOn[i]) said.push(["critical path", "a longer action here makes the step longer"]);
    return {title: `${Model.nameOf(model, i)} · ${Model.rankName(model, a.rank[i])}`, lines: said};
  }

  function transfer(model, m) {
    const msgs = model.messages;
    let text = `${messageText(model, m)}, ${Units.time(msgs.end[m] - msgs.moving[m])} on its way`;
    if (msgs.moving[m] > msgs.ready[m]) text += `, ${Units.time(msgs.moving[m] - msgs.ready[m])} before it left`;
    const consumer = msgs.consumer[m];
    if (consumer > 0) {
      const early = model.actions.start[consumer - 1] - msgs.end[m];
      if (early > 0) text += `, there ${Units.time(early)} before it was needed`;
    }
    return text;
  }

  function bubble(model, mark) {
    const b = model.bubbles, i = mark.number;
    const said = [["time", `${Units.time(b.end[i] - b.start[i])}, ${between(b.start[i], b.end[i])}`],
                  ["cause", cause(model, i)], ...roots(model, i, i + 1)];
    if (b.waiting[i] > 0) said.push(["holds up", Model.nameOf(model, b.waiting[i] - 1)]);
    return {title: `idle · ${Model.rankName(model, mark.rank)}`, lines: said};
  }

  /// Of a rank that did not finish: where it stands, and for whom it waits.
  function stuck(model, mark) {
    const said = model.facts.stuck.filter((each) => each.rank === mark.rank)
      .map((each, n) => [n === 0 ? "stands at" : "", `${each.name}, since ${Units.time(each.start_ns)}`]);
    for (const step of model.facts.cycle) {
      if (step.rank === mark.rank)
        said.push(["in a cycle", `${step.name} waits for ${step.waits_for} on rank ${step.other_rank}`]);
    }
    return {title: `stuck · ${Model.rankName(model, mark.rank)}`, lines: said};
  }

  /// "m3–m6, m9 of stage 2".
  function aliveText(alive) {
    const stages = new Map();
    for (const each of alive) {
      const key = `stage ${each.stage}${each.forWeights ? ", kept for W" : ""}`;
      if (!stages.has(key)) stages.set(key, []);
      stages.get(key).push(each.microBatch);
    }
    return [...stages].map(([key, all]) => `${key}: ${runs(all.sort((x, y) => x - y))}`);
  }

  function runs(numbers) {
    const parts = [];
    for (let i = 0; i < numbers.length; ++i) {
      const from = numbers[i];
      while (i + 1 < numbers.length && numbers[i + 1] === numbers[i] + 1) ++i;
      parts.push(from === numbers[i] ? `m${from}` : `m${from}–m${numbers[i]}`);
    }
    return parts.join(", ");
  }

  function memory(model, mark) {
    const m = model.memory, peak = m.peaks[mark.rank], at = mark.number;
    const value = (bytes, live) => m.hasBytes ? `${Units.bytes(bytes)}, ${live} activations live` : `${live} activations live`;
    const said = [["now", `${value(m.bytes[at], m.activations[at])}, from ${Units.time(m.time[at])} on`],
                  ["peak", `${value(peak.bytes, peak.activations)}, at ${Units.time(peak.at_ns)}`]];
    if (peak.during > 0) said.push(["", `while ${Model.nameOf(model, peak.during - 1)} runs`]);
    if (m.hasBytes) said.push(["always", `${Units.bytes(peak.constant_bytes)} of weights, gradients, optimizer`]);
    const alive = m.alive(mark.rank);
    aliveText(alive).forEach((text, n) => said.push([n === 0 ? "alive then" : "", text]));
    if (m.hasBytes) {
      const kept = alive.reduce((sum, each) => sum + each.bytes, 0);
      said.push(["", `${Units.bytes(kept)} of these, ${Units.bytes(peak.other_bytes)} for the running action and the rest`]);
    }
    return {title: `memory · ${Model.rankName(model, mark.rank)}`, lines: said};
  }

  /// Into an element, as text.
  function show(element, of) {
    element.replaceChildren();
    const title = document.createElement("b");
    title.textContent = of.title;
    element.append(title);
    const list = document.createElement("dl");
    for (const [label, text] of of.lines) {
      const name = document.createElement("dt"), value = document.createElement("dd");
      name.textContent = label;
      value.textContent = text;
      list.append(name, value);
    }
    element.append(list);
  }

  return {lines, show};
})();
