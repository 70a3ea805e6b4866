"use strict";
// What the colours mean, with the share of the time of all ranks that each takes.

const Legend = (() => {
  const NAMES = {F: "F forward", B: "B backward", I: "I input gradient", W: "W weight gradient",
                 pair: "overlapped pair", update: "update and weights"};

  function entry(colour, name, shares) {
    const item = document.createElement("span"), box = document.createElement("i");
    item.className = "key";
    box.style.background = colour;
    item.append(box, shares === null ? name : `${name} ${shares.map(Units.percent).join(" / ")}`);
    return item;
  }

  /// Of the time of all ranks, the part of each look and each cause.
  function sharesOf({model}) {
    const looks = new Float64Array(Model.LOOKS.length), causes = new Float64Array(model.facts.causes.length);
    const a = model.actions, b = model.bubbles, whole = Math.max(1, model.makespan * model.ranks);
    for (let i = 0; i < a.count; ++i) looks[a.look[i]] += (a.end[i] - a.start[i]) / whole;
    for (let i = 0; i < b.count; ++i) causes[b.cause[i]] += (b.end[i] - b.start[i]) / whole;
    return {looks, causes};
  }

  function fill(element, scene) {
    const {model} = scene.timelines[0], colours = Theme.colours(), shares = scene.timelines.map(sharesOf);
    const add = (colour, name, own) => { if (own.some((part) => part > 0)) element.append(entry(colour, name, own)); };
    element.replaceChildren();
    Model.LOOKS.forEach((look, n) => add(colours.lookText[n], NAMES[look], shares.map((each) => each.looks[n])));
    model.facts.causes.forEach((cause, n) => add(colours.causeText[n], cause, shares.map((each) => each.causes[n])));
    if (model.messages.count > 0) element.append(entry(colours.activation, "activation", null),
                                                 entry(colours.gradient, "gradient", null));
    element.append(entry(colours.path, "critical path", null));
    if (model.actions.other) element.append(entry(colours.longer, "longer than in A", null),
                                                   entry(colours.shorter, "shorter", null));
  }

  return {fill};
})();
