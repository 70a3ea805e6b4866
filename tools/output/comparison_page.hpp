// The page of compare --html: two timelines of one order, one below the other.
#pragma once

#include <string>

#include "traces/analysis/compare.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::tools {

/// Throws InputError where a trace is none of one step.
std::string comparison_page(const traces::TraceTimeline& predicted,
                            const traces::TraceTimeline& measured,
                            const traces::Comparison& comparison);

}  // namespace pipewright::tools
