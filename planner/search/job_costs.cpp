#include "planner/search/job_costs.hpp"

#include "core/base/error.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"

namespace pipewright::planner {
namespace {

/// What all times have to be multiplied by for the measured step to be met.
double scale_of(const Job& job, const ConfigurationCosts& costs) {
  const MeasuredStep& measured = *job.measured_step;
  const auto refuse = [&](const std::string& why) {
    throw InputError("measured_step: \"" + measured.configuration +
                     "\" is no configuration of this job: " + why);
  };
  const NamedConfiguration named = read_configuration(measured.configuration, job, nullptr);
  if (const auto rule = broken_rule(named, job, costs)) refuse(*rule);
  const Evaluation evaluation =
      evaluate(job, costs, branch_of(named.configuration, costs), Bytes(0));
  if (evaluation.pruned) refuse("it " + sentence_of(*evaluation.pruned));
  return static_cast<double>(measured.step.value) /
         static_cast<double>(evaluation.candidate.step.value);
}

}  // namespace

std::unique_ptr<ConfigurationCosts> costs_of_job(const Job& job, const Profile* profile,
                                                 int cores) {
  const auto model = profile == nullptr ? estimated_architecture(job) : std::nullopt;
  if (!model) return layer_configurations(job, profile, cores);
  auto costs = estimated_configurations(job, *model);
  if (!job.measured_step) return costs;
  return estimated_configurations(job, *model, scale_of(job, *costs));
}

}  // namespace pipewright::planner
