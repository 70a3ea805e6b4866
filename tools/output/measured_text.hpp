// What was measured and what was fitted to it, as text and as JSON.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "planner/search/measured_fit.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {

/// The scales and, by measured step, what the fit says of it: a table that ends in a newline; ""
/// for a fit to nothing.
std::string measured_text(const planner::MeasuredFit& fit, const Terminal& terminal);
/// "scales", "fitted", "spread", "memory_deviation", "steps".
Json measured_fields(const planner::MeasuredFit& fit);

}  // namespace pipewright::tools
