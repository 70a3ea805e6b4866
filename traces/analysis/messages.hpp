// The messages of a job as its ranks saw them, each by its own clock.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// A tensor from one rank to another. It cannot have come before it left.
struct Message {
  std::size_t from = 0, to = 0;  // indices into the ranks of the trace
  /// The first moment at which it may be under way, by the sender's clock, and the last by which it
  /// has come, by the receiver's.
  std::int64_t begun_ns = 0, ended_ns = 0;
  bool awaited = false;  // the receiver stood still until then, so it did not come much earlier
};

/// Matched by stage, direction and micro-batch. Where a trace does not show the SEND or the
/// RECV, the ends of the computations that make and take the tensor stand in. Appends.
void add_messages(const TraceTimeline& step, std::vector<Message>& messages);

}  // namespace pipewright::traces
