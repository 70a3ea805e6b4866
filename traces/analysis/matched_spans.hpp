// The spans of two timelines of one order that belong together: computations, and the receives of
// transfers, by rank and name; of several of one name the k-th with the k-th.
// Pure functions; the spans stay the timelines'.
#pragma once

#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

struct MatchedSpan {
  int rank = 0;
  const TraceSpan* predicted = nullptr;  // null: only in the other one
  const TraceSpan* measured = nullptr;

  const TraceSpan& either() const { return predicted != nullptr ? *predicted : *measured; }
  bool is_pair_of_computations() const {
    return predicted != nullptr && measured != nullptr && predicted->kind == SpanKind::Compute;
  }
};

/// Ascending ranks; those of a rank by kind, stage and micro-batch of the action, then by time.
std::vector<MatchedSpan> match_spans(const TraceTimeline& predicted, const TraceTimeline& measured);

/// Of a computation how long it took; of a receive how long data moved.
std::int64_t matched_ns(const TraceSpan& span);

}  // namespace pipewright::traces
