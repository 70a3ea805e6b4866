// What a fit of two timelines says, and a profile corrected by it.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/plan/profile.hpp"
#include "tools/cli/terminal.hpp"
#include "traces/analysis/fit.hpp"

namespace pipewright::tools {

std::string fit_text(const traces::Fit& fit, const Terminal& terminal);
Json fit_fields(const traces::Fit& fit);

/// Every layer's times multiplied by their kind's factor at the mean contention, spreads too, and
/// the action's overhead added. Where a trace has B, its factor holds for I and W.
Profile fitted_profile(Profile profile, const traces::Fit& fit);

}  // namespace pipewright::tools
