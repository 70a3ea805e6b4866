// Numbers as the planner's sentences write them. Pure functions.
#pragma once

#include <string>

namespace pipewright::planner {

/// A share in tenths of a percent: "12.3 %".
std::string percent(double share);
/// "1.05".
std::string hundredths(double value);

}  // namespace pipewright::planner
