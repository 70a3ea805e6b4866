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

/// So many deviations either side of the mean 90 % lie, and below so many.
inline constexpr double kDeviationsOf90 = 1.6449, kDeviationsBelow90 = 1.2816;

}  // namespace pipewright::planner
