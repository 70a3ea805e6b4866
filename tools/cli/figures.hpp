// Figures as text and as the JSON that outside scripts rely on.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::tools {

/// "makespan_ns", "bubble_ratio", "span_bubble_ratio", "ranks".
Json figures_fields(const Figures& figures);
/// "27.3 %".
std::string percent_text(double ratio);
/// "+1.2 %".
std::string signed_percent_text(double ratio);

}  // namespace pipewright::tools
