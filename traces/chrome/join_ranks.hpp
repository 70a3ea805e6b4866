// The files that the ranks of one job wrote, as one timeline on one clock.
#pragma once

#include <vector>

#include "traces/analysis/clocks.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

struct JoinedTrace {
  TraceTimeline trace;
  ClockFit clocks;  // without entries for a trace of one rank, or of Pipewright
};

/// Each file is of other ranks of the same steps, and gives one timeline of each step. Times are
/// brought together by the machines' clocks; where a message would then end before it began, or far
/// behind others, the clocks are set right by the messages of all steps (fit_clocks). Waiting
/// inside slices that no file shows is then taken out by what feeds it (WaitRule::Producers). A
/// file of several ranks is treated the same. Throws InputError if two files are of one rank, two
/// ranks compute the same, Pipewright wrote one of several files, the files have no steps in
/// common, or the clocks cannot be set right.
std::vector<JoinedTrace> join_steps(std::vector<std::vector<TraceTimeline>> files);

/// The same of files of one step.
JoinedTrace join_ranks(std::vector<TraceTimeline> files);

}  // namespace pipewright::traces
