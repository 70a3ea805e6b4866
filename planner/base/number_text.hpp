// Numbers as the planner's sentences write them, and as its parameters are read. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/count_of.hpp"

namespace pipewright::planner {

/// A share in tenths of a percent: "12.3 %".
std::string percent(double share);
/// The same for two times that differ: "less than 0.1 %" in place of "0.0 %".
std::string percent_apart(double share);
/// "1.05".
std::string hundredths(double value);

/// Rising numbers, those that follow one another as a range: "1-4 7 9-12" with "-" through and " "
/// between.
std::string ranges_of(const std::vector<int>& numbers, std::string_view through,
                      std::string_view between);

/// The parameter as a whole number, or nullopt where it is not one from 1 to 2^31 - 1.
std::optional<int> positive_integer(std::string_view text);

}  // namespace pipewright::planner
