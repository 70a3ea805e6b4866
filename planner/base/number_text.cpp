#include "planner/base/number_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace pipewright::planner {

std::string percent(double share) {
  const auto tenths = std::llround(share * 1000);
  return std::to_string(tenths / 10) + "." + std::to_string(std::abs(tenths % 10)) + " %";
}

std::string percent_apart(double share) {
  constexpr double kLeastShown = 0.001;
  return share < kLeastShown ? "less than " + percent(kLeastShown) : percent(share);
}

std::string hundredths(double value) {
  const auto n = std::llround(value * 100);
  const std::string rest = std::to_string(n % 100);
  return std::to_string(n / 100) + "." + (rest.size() < 2 ? "0" : "") + rest;
}

std::string ranges_of(const std::vector<int>& numbers, std::string_view through,
                      std::string_view between) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += between;
    text += std::to_string(numbers[first]);
    if (last > first) (text += through) += std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

std::optional<int> positive_integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace pipewright::planner
