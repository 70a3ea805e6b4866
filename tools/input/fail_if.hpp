// --fail-if "step>5%": a limit that turns an answer into exit status 1.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

struct FailCondition {
  std::string text;    // as the user wrote it
  std::string metric;  // one of those offered
  double limit = 0;    // a ratio: 5% is 0.05
};

Flag fail_if_flag(std::string_view help);
/// Throws InputError for another grammar or a metric that is not offered.
std::optional<FailCondition> fail_condition(const Arguments& arguments,
                                            const std::vector<std::string_view>& metrics);
/// True if the metric's value is above the limit.
bool fails(const std::optional<FailCondition>& condition,
           const std::map<std::string, double, std::less<>>& values);

}  // namespace pipewright::tools
