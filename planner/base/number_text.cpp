#include "planner/base/number_text.hpp"

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

}  // namespace pipewright::planner
