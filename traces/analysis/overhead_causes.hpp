// The cause of gaps that the messages of a job do not explain, from what its trace shows there.
#pragma once

#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// Overhead in which the trace shows a rank waiting for an input (TraceRank::waits) becomes Data,
/// overhead in which it shows the host starting a transfer or a collective (`posts`) Transfer. The
/// report's ranks are those of the trace. Sums stay.
void explain_overhead(const TraceTimeline& trace, BubbleReport& report);

}  // namespace pipewright::traces
