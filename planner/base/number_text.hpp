// Numbers as the planner's sentences write them. Pure functions.
#pragma once

#include <string>

namespace pipewright::planner {

/// A share in tenths of a percent: "12.3 %".
std::string percent(double share);
/// Of what two times differ by, where they do: never "0.0 %" but "less than 0.1 %".
std::string percent_apart(double share);
/// "1.05".
std::string hundredths(double value);

}  // namespace pipewright::planner
