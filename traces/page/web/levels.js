"use strict";
// Level of detail. Where many actions fall into one pixel it shows how its time is shared among them,
// from sums along each rank; of memory it shows the most, so that no peak is lost at any zoom.

const Levels = (() => {
  /// By look, the time that actions of that look took before each action, counted over all ranks.
  function sumsOf(acts) {
    const used = new Set(acts.look);
    const sums = Model.LOOKS.map((_, look) => used.has(look) ? new Float64Array(acts.count + 1) : null);
    for (let look = 0; look < sums.length; ++look) {
      const sum = sums[look];
      if (!sum) continue;
      for (let i = 0; i < acts.count; ++i)
        sum[i + 1] = sum[i] + (acts.look[i] === look ? acts.end[i] - acts.start[i] : 0);
    }
    return sums;
  }

  /// Into `shares`: the time of each look among the actions [i, k] in [from, to).
  function share(acts, sums, i, k, from, to, shares) {
    for (let look = 0; look < sums.length; ++look)
      shares[look] = sums[look] ? sums[look][k + 1] - sums[look][i] : 0;
    if (acts.start[i] < from) shares[acts.look[i]] -= Math.min(from, acts.end[i]) - acts.start[i];
    if (acts.end[k] > to) shares[acts.look[k]] -= acts.end[k] - Math.max(to, acts.start[k]);
  }

  /// Maxima over 2, 4, 8, … neighbours, for all ranks at once.
  function maximaOf(values) {
    const levels = [values];
    for (let last = values; last.length > 1;) {
      const next = new Float64Array((last.length + 1) >> 1);
      for (let i = 0; i < next.length; ++i)
        next[i] = Math.max(last[2 * i], 2 * i + 1 < last.length ? last[2 * i + 1] : -Infinity);
      levels.push(next);
      last = next;
    }
    return levels;
  }

  /// The most of values[from … to].
  function most(levels, from, to) {
    let result = -Infinity;
    for (let level = 0; from <= to; ++level, from >>= 1, to = (to - 1) >> 1) {
      const values = levels[level];
      if (from & 1) result = Math.max(result, values[from++]);
      if (!(to & 1)) result = Math.max(result, values[to]);
      if (from > to) break;
    }
    return result;
  }

  return {sumsOf, share, maximaOf, most};
})();
