#include "planner/measured/scale_fit.hpp"

#include <algorithm>
#include <cmath>

#include "planner/measured/positive_definite.hpp"

namespace pipewright::planner {
namespace {

using Matrix = SquareMatrix<kScales>;

// Standard deviations of logarithms, before anything was measured. Their sources:
// docs/decisions/0048-measured-steps.md.
constexpr ScaleVector kPrior{0.2, 0.3, 0.5};
/// Of a machine of which nothing was measured (docs/decisions/0061-kinds-of-job.md,
/// 0076-what-libraries-do.md). Fits are drawn less: what is measured may be unlike any machine of
/// the tables.
constexpr ScaleVector kUnmeasured{0.13, 0.2, 0.15};
constexpr double kPriorSpread = 0.08;
constexpr double kPriorRows = 2;  // as many rows as the prior spread counts for

constexpr int kMostSteps = 12;
constexpr double kSlopeStep = 0.05;  // of a logarithm
constexpr double kSmallStep = 1e-6;

double* member(CostScales& scales, std::size_t k) {
  return k == 0 ? &scales.time : k == 1 ? &scales.messages : &scales.launches;
}

CostScales moved(CostScales scales, std::size_t k, double by) {
  *member(scales, k) *= std::exp(by);
  return scales;
}

std::vector<double> log_ratios(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t row = 0; row < over.size(); ++row)
    ratios.push_back(std::log(over[row] / under[row]));
  return ratios;
}

/// J^T J / spread^2 + 1 / prior^2. Scales from `fitted` on are held: their rows stay the prior's.
Matrix precision(const std::vector<ScaleVector>& slopes, double spread, std::size_t fitted,
                 const ScaleVector& prior = kPrior) {
  Matrix matrix{};
  for (std::size_t i = 0; i < kScales; ++i) matrix[i][i] = 1 / (prior[i] * prior[i]);
  for (const ScaleVector& row : slopes) {
    for (std::size_t i = 0; i < fitted; ++i) {
      for (std::size_t j = 0; j < fitted; ++j) matrix[i][j] += row[i] * row[j] / (spread * spread);
    }
  }
  return matrix;
}

double squares(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

/// Minus twice the logarithm of likelihood times prior, but for constants.
double misfit(const std::vector<double>& residuals, const ScaleVector& logs) {
  double sum = squares(residuals) / (kPriorSpread * kPriorSpread);
  for (std::size_t i = 0; i < kScales; ++i) sum += logs[i] * logs[i] / (kPrior[i] * kPrior[i]);
  return sum;
}

CostScales scales_of(const ScaleVector& logs) {
  CostScales scales;
  for (std::size_t i = 0; i < kScales; ++i) *member(scales, i) = std::exp(logs[i]);
  return scales;
}

/// What Gauss and Newton add to the logarithms.
ScaleVector next_step(const std::vector<ScaleVector>& slopes, const std::vector<double>& residuals,
                      const ScaleVector& logs, std::size_t fitted) {
  ScaleVector right{};
  for (std::size_t i = 0; i < fitted; ++i) {
    right[i] = -logs[i] / (kPrior[i] * kPrior[i]);
    for (std::size_t row = 0; row < slopes.size(); ++row)
      right[i] += slopes[row][i] * residuals[row] / (kPriorSpread * kPriorSpread);
  }
  const Matrix covariance = inverse(precision(slopes, kPriorSpread, fitted));
  ScaleVector step{};
  for (std::size_t i = 0; i < fitted; ++i) {
    for (std::size_t j = 0; j < fitted; ++j) step[i] += covariance[i][j] * right[j];
  }
  return step;
}

/// The logarithms of the fitted scales.
ScaleVector fitted_logs(const std::vector<double>& seconds, const PredictSeconds& predict,
                        std::size_t fitted) {
  ScaleVector logs{};
  std::vector<double> residuals = log_ratios(seconds, predict(scales_of(logs)));
  for (int round = 0; round < kMostSteps; ++round) {
    const ScaleVector step =
        next_step(slopes_at(scales_of(logs), predict), residuals, logs, fitted);
    double length = 0;
    for (const double part : step) length = std::max(length, std::abs(part));
    if (length < kSmallStep) break;
    bool better = false;
    for (double share = 1; !better && share > 1e-3; share /= 2) {
      ScaleVector next = logs;
      for (std::size_t i = 0; i < kScales; ++i) next[i] += share * step[i];
      const std::vector<double> there = log_ratios(seconds, predict(scales_of(next)));
      better = misfit(there, next) < misfit(residuals, logs);
      if (better) {
        logs = next;
        residuals = there;
      }
    }
    if (!better) break;
  }
  return logs;
}

double variance_along(const Matrix& covariance, const ScaleVector& slopes) {
  double variance = 0;
  for (std::size_t i = 0; i < kScales; ++i) {
    for (std::size_t j = 0; j < kScales; ++j) variance += slopes[i] * covariance[i][j] * slopes[j];
  }
  return variance;
}

}  // namespace

SourceDeviations deviations_of_sources(double all_times, bool is_mixture, bool waits) {
  return {all_times, is_mixture ? 0.15 : 0.04, waits ? 0.1 : 0.03};
}

void ScaleFit::expect_within(const SourceDeviations& sources) {
  ScaleVector prior{sources.all_times, kUnmeasured[1], sources.launches};
  for (std::size_t i = 0; i < kScales; ++i)
    prior[i] = std::max(prior[i], std::abs(std::log(*member(scales, i))));
  double left = 0;
  for (const double residual : residuals) left += std::pow(std::log1p(residual), 2);
  const double rows = static_cast<double>(residuals.size());
  spread_of_one = std::sqrt((kPriorRows * sources.one * sources.one + left) /
                            (kPriorRows + std::max(0.0, rows - fitted)));
  covariance = inverse(precision(slopes, spread_of_one, kScales, prior));
}

double ScaleFit::deviation(const ScaleVector& along) const {
  const double own = spread_of_one > 0 ? spread_of_one : spread;
  return std::sqrt(own * own + variance_along(covariance, along));
}

double ScaleFit::deviation_between(const ScaleVector& one, const ScaleVector& other) const {
  ScaleVector apart{};
  for (std::size_t i = 0; i < kScales; ++i) apart[i] = one[i] - other[i];
  return std::sqrt(2 * spread * spread + variance_along(covariance, apart));
}

std::vector<ScaleVector> slopes_at(const CostScales& scales, const PredictSeconds& predict) {
  const std::vector<double> here = predict(scales);
  std::vector<ScaleVector> slopes(here.size());
  for (ScaleVector& row : slopes) row[0] = 1;  // all times
  for (std::size_t k = 1; k < kScales; ++k) {
    const std::vector<double> ratios = log_ratios(predict(moved(scales, k, kSlopeStep)), here);
    for (std::size_t row = 0; row < slopes.size(); ++row) slopes[row][k] = ratios[row] / kSlopeStep;
  }
  return slopes;
}

ScaleFit fit_scales(const std::vector<double>& seconds, const PredictSeconds& predict) {
  ScaleFit fit;
  fit.spread = kPriorSpread;
  if (seconds.size() == 1) {
    fit.scales.time = seconds.front() / predict({}).front();
    fit.fitted = 1;
  } else if (seconds.size() > 1) {
    fit.fitted = static_cast<int>(std::min(kScales, seconds.size() - 1));
    fit.scales = scales_of(fitted_logs(seconds, predict, static_cast<std::size_t>(fit.fitted)));
  }
  const std::vector<double> left =
      seconds.empty() ? seconds : log_ratios(seconds, predict(fit.scales));
  for (const double each : left) fit.residuals.push_back(std::expm1(each));
  const double rows = static_cast<double>(seconds.size());
  fit.spread = std::sqrt((kPriorRows * kPriorSpread * kPriorSpread + squares(left)) /
                         (kPriorRows + std::max(0.0, rows - fit.fitted)));
  if (seconds.empty()) {
    for (std::size_t i = 0; i < kScales; ++i)
      fit.covariance[i][i] = kUnmeasured[i] * kUnmeasured[i];
  } else {
    fit.slopes = slopes_at(fit.scales, predict);
    fit.covariance = inverse(precision(fit.slopes, fit.spread, kScales));
  }
  return fit;
}

}  // namespace pipewright::planner
