#include "planner/measured/expectation.hpp"

#include <cmath>

#include "planner/measured/normal.hpp"

namespace pipewright::planner {

double expected_improvement(const Outlook& outlook, double best) {
  const double s = outlook.deviation, z = std::log(best / outlook.seconds) / s;
  const double mean_below = outlook.seconds * std::exp(s * s / 2) * normal_below(z - s);
  return outlook.fits * (best * normal_below(z) - mean_below);
}

double chance_below(const Outlook& outlook, double seconds) {
  return outlook.fits * normal_below(std::log(seconds / outlook.seconds) / outlook.deviation);
}

}  // namespace pipewright::planner
