// The discrete-event engine: a Program and a cost table in, a timeline or a
// stuck state out. Deterministic, no global state: the planner runs many at
// once, one call a thread.
#pragma once

#include "core/costs.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "core/wait_for.hpp"

namespace pipewright::sim {

struct Result {
  /// Ended, or stuck at `progress`; core's explain_stuck() turns that into a
  /// verdict.
  bool finished = false;
  Timeline timeline;
  Progress progress;  // filled only if not finished
};

/// Reads the Program under the cost table. O(n) without shared links, O(n log
/// n) with them.
Result simulate(const Program& program, const CostTable& costs);

/// What `check` does: reads the Program without durations and says whether it
/// ends.
WaitReport check(const Program& program, const CostTable& costs);

}  // namespace pipewright::sim
