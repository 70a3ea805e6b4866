"use strict";
// Columns of integers, as traces/page/columns.cpp packs them: base64, a deflate stream, and in it the
// bytes of each column one after another: numbers in groups of seven bits, the sign in the lowest.

const Decode = (() => {
  /// The bytes of a base64 text.
  function bytesOf(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  async function inflate(bytes, size) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const out = new Uint8Array(size);
    const reader = stream.getReader();
    for (let at = 0; ;) {
      const {done, value} = await reader.read();
      if (done) return out;
      out.set(value, at);
      at += value.length;
    }
  }

  /// One column; numbers beyond 2^53 are not exact, and a step of 100 days in nanoseconds is below.
  function column(bytes, at, entry) {
    const values = new Float64Array(entry.count);
    let last = 0;
    for (let i = 0; i < entry.count; ++i) {
      let byte = bytes[at++];
      let value = byte & 127;
      for (let factor = 128; byte > 127; factor *= 128) {
        byte = bytes[at++];
        value += (byte & 127) * factor;
      }
      const half = Math.floor(value / 2);
      const number = value === 2 * half ? half : -half - 1;
      last = entry.difference ? last + number : number;
      values[i] = last;
    }
    return values;
  }

  /// {name: Float64Array} of all columns of a timeline.
  async function columns(directory, base64) {
    const size = directory.reduce((sum, entry) => sum + entry.bytes, 0);
    const bytes = await inflate(bytesOf(base64), size);
    const all = {};
    let at = 0;
    for (const entry of directory) {
      all[entry.name] = column(bytes, at, entry);
      at += entry.bytes;
    }
    return all;
  }

  return {columns};
})();
