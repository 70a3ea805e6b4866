// The few scales of an estimate, fitted to measured steps (docs/decisions/0048-measured-steps.md).
// Pure functions.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "planner/estimate/cost_scales.hpp"

namespace pipewright::planner {

/// time, messages, launches: with n rows the first n - 1 of them are fitted, with one row the time
/// alone.
inline constexpr std::size_t kScales = 3;

/// How far off published sources were where they were left out, before anything is measured:
/// standard deviations of logarithms (docs/decisions/0094-blocking-launches.md).
struct SourceDeviations {
  double all_times = 0;  // of a machine
  double one = 0;        // of one configuration beside them
  double launches = 0;   // of what the host takes to start kernels
};
/// `waits`: ranks that divide a block, or exchange what its experts take, wait for the last of them
/// (waits_for_group()).
SourceDeviations deviations_of_sources(double all_times, bool is_mixture, bool waits);

using ScaleVector = std::array<double, kScales>;  // one number a scale: logarithms, slopes

/// The seconds that the estimate says of each row with these scales.
using PredictSeconds = std::function<std::vector<double>(const CostScales&)>;

struct ScaleFit {
  CostScales scales;
  int fitted = 0;  // of kScales
  /// Of the logarithms of all scales, those that were not fitted too.
  std::array<ScaleVector, kScales> covariance{};
  /// Standard deviation of ln(measured / predicted) of one configuration, as far as no scale
  /// explains it.
  double spread = 0;
  double spread_of_one = 0;  // of one alone, against the sources'; 0: as any two of a job differ
  std::vector<double> residuals;    // measured / predicted - 1, by row
  std::vector<ScaleVector> slopes;  // of the rows, at the scales

  /// What was measured narrows the deviations of sources; where it is farther off than they are,
  /// they are as wide as that.
  void expect_within(const SourceDeviations& sources);
  /// Standard deviation of the logarithm of the time of a configuration that was not measured;
  /// `along`: slopes of its logarithm along the logarithm of each scale.
  double deviation(const ScaleVector& along) const;
  /// The same of the ratio of two such times, which have the errors of the scales in common.
  double deviation_between(const ScaleVector& one, const ScaleVector& other) const;
};

/// Bayesian linear regression of the logarithms, made linear anew at each step (Gauss-Newton): the
/// largest of likelihood times prior, a normal one around the estimate as it is. `seconds`:
/// measured, by row; none is a fit to nothing, the prior alone. `predict` is asked about a dozen
/// times.
ScaleFit fit_scales(const std::vector<double>& seconds, const PredictSeconds& predict);

/// Slopes of ln(seconds) along each scale, by row, at `scales`.
std::vector<ScaleVector> slopes_at(const CostScales& scales, const PredictSeconds& predict);

}  // namespace pipewright::planner
