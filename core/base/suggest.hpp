// "did you mean …": the nearest of some names by edit distance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// The nearest name if it is near enough to be a slip (case ignored), else "".
std::string nearest_name(std::string_view wrong, const std::vector<std::string_view>& names);
/// " (did you mean \"1f1b\"?)" or "".
std::string did_you_mean(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace pipewright
