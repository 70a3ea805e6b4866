// A Program for a trace that was read from a file, so that its bubbles can be explained like those
// of a plan.
#pragma once

#include <string>

#include "core/order/order.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::tools {

struct TraceProgram {
  Program program;
  Timeline timeline;
};

/// The order of the computations as the trace shows them, lowered anew; transfers get the times of
/// the trace where it has them. A transfer that the trace does not show counts as taking from its
/// producer's end until its consumer's start. Throws InputError if an action occurs twice on a
/// rank (several steps in one file).
TraceProgram program_of_trace(const traces::TraceTimeline& trace);

/// True if the ranks are a pipeline from its first stage to its last, by the messages that they
/// show; the job may have other ranks: replicas, parts of layers.
bool is_whole_pipeline(const traces::TraceTimeline& trace);

/// Why a trace does not say the whole order of its job, behind "… needs "; "" where it does.
std::string why_no_order(const traces::TraceTimeline& trace);

/// What the ranks computed, in the order in which it started, and nothing that follows from it: a
/// schedule like one from a CSV. Throws InputError, "`use` needs `why`", where why_no_order().
Order order_of_trace(const traces::TraceTimeline& trace, const std::string& use);

}  // namespace pipewright::tools
