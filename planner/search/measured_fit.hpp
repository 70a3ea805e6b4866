// A job's costs, fitted to its measured steps (docs/decisions/0048-measured-steps.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"
#include "planner/measured/memory_fit.hpp"
#include "planner/measured/scale_fit.hpp"

namespace pipewright::planner {

/// A measured step beside what the fit says of it.
struct FittedStep {
  MeasuredStep measured;
  Nanoseconds predicted;
  Bytes predicted_peak;
};

struct MeasuredFit {
  ScaleFit times;
  MemoryFit memory;
  std::vector<FittedStep> steps;
  Bytes memory_limit;  // of any rank; 0: none

  CostScales scales() const;
  /// "times 1.2 by the measured step of tp=8"; of several: "fitted to 4 measured steps: times 1.11,
  /// messages times 0.9"; "" where nothing was measured.
  std::string summary() const;
  /// The same without what it was fitted to, and to several without the scales.
  std::string brief() const;
};

/// What the costs with some scales say of a configuration.
struct Priced {
  double seconds = 0, peak_bytes = 0;
};
/// Of each measured step, with the scales of times; memory is that of scale 1.
using PriceSteps = std::function<std::vector<Priced>(const CostScales&)>;
/// `memory_limit`: of any rank; 0: none.
MeasuredFit fit_to(const std::vector<MeasuredStep>& steps, Bytes memory_limit,
                   const PriceSteps& price);

/// A job that is planned layer by layer has one scale, that of all times. Throws InputError for a
/// configuration of which nothing can be simulated.
std::vector<Priced> priced(const Job& job, const Profile* profile, int cores,
                           const std::vector<Configuration>& configurations,
                           const CostScales& scales);

/// Slopes of the logarithms of their times along the scales (planner/measured/scale_fit.hpp), at
/// `scales`. Errors as of priced().
std::vector<ScaleVector> slopes_of(const Job& job, const Profile* profile, int cores,
                                   const std::vector<Configuration>& configurations,
                                   const CostScales& scales);

/// As a search judges it, whose schedules plan for the memory that there is; what does not fit is
/// judged as if there were enough.
Evaluation evaluate_any(const Job& job, const ConfigurationCosts& costs,
                        const Configuration& configuration);

/// The configuration that a text names, which stands at this place. Throws InputError, with that
/// place, for one that is none of this job.
Configuration configuration_of_job(const Job& job, const ConfigurationCosts& costs,
                                   const std::string& text, const std::string& file,
                                   const std::string& place);

/// job.measured_steps, fitted. Arguments and errors as of costs_of_job().
MeasuredFit fit_measured_steps(const Job& job, const Profile* profile, int cores);

}  // namespace pipewright::planner
