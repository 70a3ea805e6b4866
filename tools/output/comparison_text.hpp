// A prediction beside a measurement, for compare, run and demo.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "traces/analysis/compare.hpp"

namespace pipewright::tools {

std::string comparison_text(const traces::Comparison& comparison, const Terminal& terminal);
/// The bubble of all ranks, and how far off that of each is.
std::string bubble_text(const traces::Comparison& comparison, const Terminal& terminal);
Json comparison_fields(const traces::Comparison& comparison);

}  // namespace pipewright::tools
