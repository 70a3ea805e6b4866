// Numbers as the planner's sentences write them. Pure functions.
#pragma once

#include <string>

namespace pipewright::planner {

/// A share in tenths of a percent: "12.3 %".
std::string percent(double share);
/// The same for two times that differ: "less than 0.1 %" in place of "0.0 %".
std::string percent_apart(double share);
/// "1.05".
std::string hundredths(double value);

}  // namespace pipewright::planner
