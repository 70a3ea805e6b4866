"use strict";
// What the colours mean, with the share of the time of all ranks that each takes.

const Legend = (() => {
  const NAMES = {F: "F forward", B: "B backward", I: "I input gradient", W: "W weight gradient",
                 pair: "overlapped pair", update: "update and weights"};

  function entry(colour, name, share) {
    const item = document.createElement("span"), box = document.createElement("i");
    item.className = "key";
    box.style.background = colour;
    item.append(box, share === null ? name : `${name} ${Units.percent(share)}`);
    return item;
  }

  function fill(element, scene) {
    const {model} = scene.timelines[0], colours = Theme.colours();
    const looks = new Float64Array(Model.LOOKS.length), causes = new Float64Array(model.facts.causes.length);
    const a = model.actions, b = model.bubbles, whole = Math.max(1, model.makespan * model.ranks);
    for (let i = 0; i < a.count; ++i) looks[a.look[i]] += a.end[i] - a.start[i];
    for (let i = 0; i < b.count; ++i) causes[b.cause[i]] += b.end[i] - b.start[i];
    element.replaceChildren();
    looks.forEach((ns, look) => {
      if (ns > 0) element.append(entry(colours.lookText[look], NAMES[Model.LOOKS[look]], ns / whole));
    });
    causes.forEach((ns, cause) => {
      if (ns > 0) element.append(entry(colours.causeText[cause], model.facts.causes[cause], ns / whole));
    });
    if (model.messages.count > 0) element.append(entry(colours.activation, "activation", null),
                                                 entry(colours.gradient, "gradient", null));
    element.append(entry(colours.path, "critical path", null));
  }

  return {fill};
})();
