#include "planner/measured/memory_fit.hpp"

#include <algorithm>
#include <cmath>

#include "planner/measured/normal.hpp"

namespace pipewright::planner {
namespace {

// Of logarithms; their sources: docs/decisions/0048-measured-steps.md.
constexpr double kMemoryPrior = 0.1, kPeakSpread = 0.05;
constexpr double kFarthest = 2;  // a factor of e^2 either way

/// density / chance, also far out, where both vanish.
double hazard(double z) {
  constexpr double kFar = -30;
  return z < kFar ? -z : normal_density(z) / normal_below(z);
}

/// The slope of the logarithm of likelihood times prior along that of the factor, which falls.
double slope_at(const std::vector<MemoryRow>& rows, double limit, double log_scale) {
  double slope = -log_scale / (kMemoryPrior * kMemoryPrior);
  for (const MemoryRow& row : rows) {
    if (row.predicted <= 0) continue;
    if (row.measured > 0) {
      slope += (std::log(row.measured / row.predicted) - log_scale) / (kPeakSpread * kPeakSpread);
    } else if (limit > 0) {
      const double room = (std::log(limit / row.predicted) - log_scale) / kPeakSpread;
      slope += row.ran ? -hazard(room) / kPeakSpread : hazard(-room) / kPeakSpread;
    }
  }
  return slope;
}

}  // namespace

MemoryFit fit_memory(const std::vector<MemoryRow>& rows, double limit) {
  const bool tells = std::any_of(rows.begin(), rows.end(), [&](const MemoryRow& row) {
    return row.measured > 0 || (!row.ran && limit > 0);
  });
  if (!tells) return {1, std::hypot(kMemoryPrior, kPeakSpread)};
  double low = -kFarthest, high = kFarthest;
  for (int round = 0; round < 60; ++round) {
    const double middle = (low + high) / 2;
    (slope_at(rows, limit, middle) > 0 ? low : high) = middle;
  }
  constexpr double kStep = 1e-4;
  const double curvature =
      (slope_at(rows, limit, low - kStep) - slope_at(rows, limit, low + kStep)) / (2 * kStep);
  return {std::exp(low), std::sqrt(1 / curvature + kPeakSpread * kPeakSpread)};
}

double chance_to_fit(const MemoryFit& fit, double predicted, double limit) {
  if (limit <= 0 || predicted <= 0) return 1;
  return normal_below(std::log(limit / predicted) / fit.deviation);
}

}  // namespace pipewright::planner
