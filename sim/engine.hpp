// The discrete-event engine: a Program and a cost table in, a timeline or a
// stuck state out. Deterministic, no global state: the planner runs many at
// once, one call a thread.
#pragma once

#include <functional>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/durations.hpp"

namespace pipewright::sim {

struct Result {
  /// Ended, or stuck at `progress`; core's explain_stuck() turns that into a
  /// verdict.
  bool finished = false;
  Timeline timeline;
  Progress progress;  // filled only if not finished
};

/// Called by the thread that simulates, every 65,536 steps or so. What it throws ends the
/// simulation.
using Pulse = std::function<void()>;

/// Reads the Program under the cost table. O(n) where nothing is chosen by time: no credit that is
/// counted, no places in flight, no joined batches, no calls, no shared links. O(n log n) with
/// links on which no transfers meet, and where they do; else O(n log lanes).
Result simulate(const Program& program, const CostTable& costs, const Pulse& pulse = {});

/// The same with times that were measured, drawn or changed.
Result simulate(const Program& program, const CostTable& costs, const OwnTimes& own);

/// What `check` does: reads the Program without durations and says whether it
/// ends.
WaitReport check(const Program& program, const CostTable& costs, const Pulse& pulse = {});

}  // namespace pipewright::sim
