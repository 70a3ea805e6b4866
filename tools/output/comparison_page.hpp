// The page of two steps: their timelines one below the other, and the difference of each action.
#pragma once

#include <string>

#include "tools/input/step.hpp"
#include "traces/analysis/compare.hpp"
#include "traces/analysis/trace_timeline.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// A step that was read with traces::read_trace().
Step step_of_trace(const traces::TraceTimeline& trace);
/// What compare takes: of a trace itself, else its neutral form, with the title as its source.
traces::TraceTimeline neutral_form(const Step& step);

/// Throws InputError, blaming `b`, where the two have no action in common.
traces::Comparison compared(const traces::TraceTimeline& a, const traces::TraceTimeline& b);

/// `comparison`: of the two, the first as the prediction. Both have the same ranks.
std::string comparison_page(const Step& a, const Step& b, const traces::Comparison& comparison,
                            traces::PageNotes notes = {});

}  // namespace pipewright::tools
