// The normal distribution. Pure functions.
#pragma once

#include <cmath>
#include <numbers>

namespace pipewright::planner {

inline double normal_density(double z) {
  return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
}
/// The chance to stay below z deviations.
inline double normal_below(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

/// Below the mean and so many deviations 90 % lie.
inline constexpr double kDeviationsBelow90 = 1.2816;

}  // namespace pipewright::planner
