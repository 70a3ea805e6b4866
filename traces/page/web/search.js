"use strict";
// Finding actions by words: "B3", "2F5" (PyTorch's: stage 2, micro-batch 5), "m5", "s2", "r1" or
// "rank 1", "OPT", and several of these together. All words have to hold.

const Search = (() => {
  /// A function (model, action) -> bool, or null where a word is not understood.
  function test(query, kinds) {
    const words = query.trim().toLowerCase().replace(/\b(rank|stage|micro-?batch)\s+(?=\d)/g,
      (_, word) => ({rank: "r", stage: "s"}[word] || "m")).split(/\s+/).filter((word) => word !== "");
    const names = kinds.map((name) => name.toLowerCase());
    const conditions = [];
    for (const word of words) {
      const number = /^([mrs])(\d+)$/.exec(word);
      const action = /^(\d+)?([a-z_]+)(\d+)?$/.exec(word);
      if (number) {
        const [, letter, digits] = number, value = Number(digits);
        conditions.push({m: (one) => one.microBatch === value, s: (one) => one.stage === value,
                         r: (one) => one.rank === value}[letter]);
      } else if (action && names.includes(action[2])) {
        const kind = names.indexOf(action[2]);
        conditions.push((one) => one.kind === kind &&
          (action[1] === undefined || one.stage === Number(action[1])) &&
          (action[3] === undefined || one.microBatch === Number(action[3])));
      } else {
        return null;
      }
    }
    return conditions.length === 0 ? null : (one) => conditions.every((holds) => holds(one));
  }

  /// The actions that match, in the order of time; of a pair either of its two. null: not understood.
  function find(model, query) {
    const matches = test(query, model.facts.kinds);
    if (!matches) return null;
    const a = model.actions, found = [];
    const one = {kind: 0, stage: 0, microBatch: 0, rank: 0};
    for (let i = 0; i < a.count; ++i) {
      one.kind = a.kind[i];
      one.stage = a.stage[i];
      one.microBatch = a.microBatch[i];
      one.rank = model.facts.rank_numbers[a.rank[i]];
      const other = a.partner.get(i);
      if (matches(one) || (other && matches({...other, rank: one.rank}))) found.push(i);
    }
    return found.sort((x, y) => a.start[x] - a.start[y]);
  }

  return {find};
})();
