// The files that the ranks of one job wrote, as one timeline on one clock.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// What was added to the times of a rank, and between what bounds the messages allow: none ends on
/// one rank before it began on another.
struct ClockShift {
  int rank = 0;
  std::int64_t shift_ns = 0;
  std::int64_t least_ns = 0, most_ns = 0;  // equal for the first rank, whose clock the others get
  bool bounded = true;                     // false: no messages with it in one of the directions
};

struct JoinedTrace {
  TraceTimeline trace;
  std::vector<ClockShift> clocks;  // by rank; empty for a single file
  bool agreed = true;              // the clocks were right as they stand: nothing was shifted
};

/// Each file is of other ranks of the same step. Times are brought together by the machines'
/// clocks. Where a message would then end before it began, the clocks are wrong: the ranks are
/// shifted by the middle of what the messages between them allow (the mean of the least and the
/// greatest solution of those difference constraints, which is itself one). Waiting inside slices
/// that no file shows is then taken out by what feeds it (WaitRule::Producers). Throws InputError
/// if two files are of one rank, two ranks compute the same, Pipewright wrote a file of several, a
/// run got stuck, or no shift satisfies all messages.
JoinedTrace join_ranks(std::vector<TraceTimeline> files);

}  // namespace pipewright::traces
