// Which step each slice of a rank belongs to, in a trace of another tool that shows several.
#pragma once

#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// A step as PyTorch's profiler marks it: a slice "ProfilerStep#7".
struct MarkedStep {
  TimeRange range;
  int number = 0;
};

struct StepsOfSlices {
  std::vector<int> step_of;  // by slice; kNoStep: of none
  bool are_marked = false;   // numbers are the profiler's; else they count from 0
  static constexpr int kNoStep = -1;
};

/// `slices` are those of one rank's host, by start. If each of its computations begins inside a
/// marked step, that is its step. Else a step ends where an action comes a second time; gathering
/// weights in front of it belongs to the new step. Updates in front of the first action of a step
/// are of the step before, and of none in the first.
StepsOfSlices steps_of_slices(const std::vector<TraceSpan>& slices, std::vector<MarkedStep> marks);

}  // namespace pipewright::traces
