"use strict";
// A timeline as arrays: times become absolute, references become rows. Nothing is worked out here
// that the library has not said: causes, the critical path and peaks are read, not found.

const Model = (() => {
  const LOOKS = ["F", "B", "I", "W", "pair", "update"];
  const ROW_ACTION = 1, ROW_MESSAGE = 2, ROW_MEMBER = 3;

  /// Where the rows of each rank begin, one more entry than ranks.
  function offsets(counts) {
    const begin = new Uint32Array(counts.length + 1);
    for (let r = 0; r < counts.length; ++r) begin[r + 1] = begin[r] + counts[r];
    return begin;
  }

  /// Start and end of intervals that are given by the gap before each and its length, rank by rank.
  function intervals(begin, gaps, lengths) {
    const start = new Float64Array(gaps.length), end = new Float64Array(gaps.length);
    for (let r = 0; r + 1 < begin.length; ++r) {
      let cursor = 0;
      for (let i = begin[r]; i < begin[r + 1]; ++i) {
        start[i] = cursor + gaps[i];
        cursor = end[i] = start[i] + lengths[i];
      }
    }
    return {start, end};
  }

  function actions(columns, kinds) {
    const begin = offsets(columns["action.count"]);
    const {start, end} = intervals(begin, columns["action.gap"], columns["action.length"]);
    const kind = Uint8Array.from(columns["action.kind"]);
    const isPart = new Uint8Array(start.length), partner = new Map();
    for (const i of columns["part.action"]) isPart[i] = 1;
    columns["pair.action"].forEach((i, n) => partner.set(i, {
      kind: columns["pair.kind"][n],
      stage: columns["pair.stage"][n],
      microBatch: columns["pair.micro_batch"][n],
    }));
    const look = new Uint8Array(start.length);
    for (let i = 0; i < look.length; ++i) {
      const known = LOOKS.indexOf(kinds[kind[i]]);
      look[i] = partner.has(i) ? 4 : known >= 0 ? known : 5;
    }
    const rank = new Uint32Array(start.length);
    for (let r = 0; r + 1 < begin.length; ++r) rank.fill(r, begin[r], begin[r + 1]);
    return {
      count: start.length, begin, start, end, kind, look, rank, isPart, partner,
      stage: columns["action.stage"], microBatch: columns["action.micro_batch"],
      version: columns["action.version"], other: columns["action.other"],
    };
  }

  function messages(columns, acts) {
    const count = columns["message.from"].length;
    const ready = new Float64Array(count), moving = new Float64Array(count), end = new Float64Array(count);
    const taken = new Float64Array(count);
    for (let m = 0; m < count; ++m) {
      const producer = columns["message.producer"][m];
      ready[m] = columns["message.ready"][m] + (producer > 0 ? acts.end[producer - 1] : 0);
      moving[m] = ready[m] + columns["message.wait"][m];
      taken[m] = moving[m] + columns["message.taken"][m];
      end[m] = moving[m] + columns["message.length"][m];
    }
    return {
      count, ready, moving, taken, end,
      from: columns["message.from"], to: columns["message.to"], kind: columns["message.kind"],
      stage: columns["message.stage"], microBatch: columns["message.micro_batch"],
      producer: columns["message.producer"], consumer: columns["message.consumer"],
    };
  }

  /// For each action the rows of its messages: row[first[a]] … row[first[a + 1] - 1].
  function byAction(count, references) {
    const first = new Uint32Array(count + 1);
    for (const n of references) if (n > 0) ++first[n];
    for (let a = 0; a < count; ++a) first[a + 1] += first[a];
    const row = new Uint32Array(first[count]), next = first.slice();
    references.forEach((n, m) => { if (n > 0) row[next[n - 1]++] = m; });
    return {first, row, of: (a) => row.subarray(first[a], first[a + 1])};
  }

  /// Messages by the rank that takes them, in the order of time.
  function byReceiver(ranks, msgs) {
    const rows = Array.from({length: ranks}, () => []);
    for (let m = 0; m < msgs.count; ++m) rows[msgs.to[m]].push(m);
    return rows.map((own) => Uint32Array.from(own.sort((a, b) => msgs.moving[a] - msgs.moving[b])));
  }

  function bubbles(columns, acts) {
    const begin = offsets(columns["bubble.count"]);
    const {start, end} = intervals(begin, columns["bubble.gap"], columns["bubble.length"]);
    const firstOf = new Int32Array(acts.count).fill(-1);
    columns["bubble.waiting"].forEach((n, b) => { if (n > 0 && firstOf[n - 1] < 0) firstOf[n - 1] = b; });
    return {
      count: start.length, begin, start, end, firstOf, cause: columns["bubble.cause"],
      waiting: columns["bubble.waiting"], forRow: columns["bubble.for_row"],
      forNumber: columns["bubble.for_number"],
    };
  }

  /// What the idle time of each bubble comes from in the end; null where the page was not told.
  function roots(columns) {
    if (!columns["root.count"]) return null;
    return {
      begin: offsets(columns["root.count"]), length: columns["root.length"], cause: columns["root.cause"],
      row: columns["root.row"], number: columns["root.number"],
    };
  }

  function members(columns) {
    const start = columns["member.start"];
    const moving = start.map((at, i) => at + columns["member.wait"][i]);
    return {
      count: start.length, start, moving, end: moving.map((at, i) => at + columns["member.length"][i]),
      rank: columns["member.rank"], kind: columns["member.kind"], stage: columns["member.stage"],
      collective: columns["member.collective"],
    };
  }

  function path(columns, acts) {
    const count = columns["path.kind"].length;
    const start = new Float64Array(count), end = new Float64Array(count);
    const isOn = new Uint8Array(acts.count);
    let cursor = 0;
    for (let i = 0; i < count; ++i) {
      start[i] = cursor;
      cursor = end[i] = cursor + columns["path.length"][i];
      if (columns["path.kind"][i] === 0 && columns["path.row"][i] === ROW_ACTION)
        isOn[columns["path.number"][i] - 1] = 1;
    }
    return {count, start, end, isOn, kind: columns["path.kind"], row: columns["path.row"],
            number: columns["path.number"]};
  }

  function memory(columns, facts) {
    const begin = offsets(columns["memory.count"]);
    const value = facts.has_bytes ? columns["memory.bytes"] : columns["memory.activations"];
    const aliveBegin = offsets(columns["alive.count"]);
    let most = 0;
    for (const each of value) most = Math.max(most, each);
    return {
      begin, time: columns["memory.time"], value, most, ownMost: most, bytes: columns["memory.bytes"],
      activations: columns["memory.activations"], hasBytes: facts.has_bytes, peaks: facts.peaks,
      alive: (rank) => Array.from({length: aliveBegin[rank + 1] - aliveBegin[rank]}, (_, n) => {
        const i = aliveBegin[rank] + n;
        return {stage: columns["alive.stage"][i], microBatch: columns["alive.micro_batch"][i],
                forWeights: columns["alive.for_weights"][i] === 1, bytes: columns["alive.bytes"][i]};
      }),
    };
  }

  /// Which of its rank's stages an action's is, from 0: later ones are drawn lighter.
  function chunks(acts) {
    const chunk = new Uint8Array(acts.count);
    for (let r = 0; r + 1 < acts.begin.length; ++r) {
      const own = new Set();
      for (let i = acts.begin[r]; i < acts.begin[r + 1]; ++i) if (acts.look[i] < 5) own.add(acts.stage[i]);
      const number = new Map([...own].sort((a, b) => a - b).map((stage, n) => [stage, n]));
      for (let i = acts.begin[r]; i < acts.begin[r + 1]; ++i) chunk[i] = number.get(acts.stage[i]) || 0;
    }
    return chunk;
  }

  function build(facts, columns) {
    const acts = actions(columns, facts.kinds);
    const msgs = messages(columns, acts);
    return {
      facts, ranks: facts.ranks, end: Math.max(facts.end_ns, 1), makespan: facts.makespan_ns,
      actions: acts, chunk: chunks(acts), messages: msgs,
      sentBy: byAction(acts.count, msgs.producer), takenBy: byAction(acts.count, msgs.consumer),
      received: byReceiver(facts.ranks, msgs), members: members(columns),
      bubbles: bubbles(columns, acts), roots: roots(columns), path: path(columns, acts), memory: memory(columns, facts),
    };
  }

  /// Memory of timelines beside each other as tall as its part of the most that any of them holds,
  /// where all of it is of one unit.
  function shareScale(models) {
    const own = models.map(({memory}) => memory.ownMost);
    const isOneUnit = models.every(({memory}) => memory.hasBytes === models[0].memory.hasBytes);
    models.forEach(({memory}, n) => { memory.most = isOneUnit ? Math.max(...own) : own[n]; });
  }

  /// "rank 3": a trace may hold some of a job's ranks alone.
  const rankName = (model, row) => `rank ${model.facts.rank_numbers[row]}`;

  /// "F m3 s1", "F m7 s0 + B m3 s7", "OPT": as in our traces.
  function nameOf(model, i) {
    const a = model.actions;
    const one = (kind, stage, microBatch) => {
      const name = model.facts.kinds[kind];
      if (kind <= 3) return `${name} m${microBatch} s${stage}`;
      return name === "OPT" ? name : `${name} s${stage}`;
    };
    let name = one(a.kind[i], a.stage[i], a.microBatch[i]);
    if (a.version && a.version[i] >= 0) name += ` v${a.version[i]}`;
    const other = a.partner.get(i);
    if (other) name += ` + ${one(other.kind, other.stage, other.microBatch)}`;
    return a.isPart[i] ? `${name} (part)` : name;
  }

  /// The action of a rank that runs at a time, or -1.
  function actionAt(model, rank, time) {
    const a = model.actions;
    const i = firstEndingAfter(a.end, a.begin[rank], a.begin[rank + 1], time);
    return i < a.begin[rank + 1] && a.start[i] <= time ? i : -1;
  }

  function bubbleAt(model, rank, time) {
    const b = model.bubbles;
    const i = firstEndingAfter(b.end, b.begin[rank], b.begin[rank + 1], time);
    return i < b.begin[rank + 1] && b.start[i] <= time ? i : -1;
  }

  /// The first of [from, to) whose end is later; `to` if there is none. Ends ascend.
  function firstEndingAfter(end, from, to, time) {
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (end[middle] > time) to = middle; else from = middle + 1;
    }
    return from;
  }

  return {LOOKS, ROW_ACTION, ROW_MESSAGE, ROW_MEMBER, build, shareScale, nameOf, rankName, actionAt, bubbleAt, firstEndingAfter};
})();
