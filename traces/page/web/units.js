"use strict";
// Times and sizes as text.

const Units = (() => {
  const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

  const digits = (value) => Number(value.toPrecision(Math.abs(value) >= 1000 ? 4 : 3)).toString();

  /// With a step: as many digits as tell neighbours apart.
  function time(ns, step) {
    if (ns === 0) return "0";
    const [unit, name] = TIMES.find(([size]) => Math.abs(ns) >= size) || TIMES[3];
    if (!step) return `${digits(ns / unit)} ${name}`;
    const places = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
    return `${(ns / unit).toFixed(places)} ${name}`;
  }

  function bytes(value) {
    const [unit, name] = SIZES.find(([size]) => Math.abs(value) >= size) || SIZES[4];
    return `${digits(value / unit)} ${name}`;
  }

  const percent = (part) => `${(100 * part).toFixed(1)} %`;

  return {time, bytes, percent};
})();
