#include "planner/search/job_costs.hpp"

#include "planner/search/measured_fit.hpp"

namespace pipewright::planner {

namespace {

std::unique_ptr<ConfigurationCosts> costs_if_alike(const Job& job, const Profile* profile,
                                                   int cores) {
  const auto model = profile == nullptr ? estimated_architecture(job) : std::nullopt;
  if (!model) return layer_configurations(job, profile, cores);
  if (job.measured_steps.empty()) return estimated_configurations(job, *model);
  const MeasuredFit fit = fit_measured_steps(job, profile, cores);
  return estimated_configurations(job, *model, {fit.scales(), fit.brief(), fit.summary()});
}

}  // namespace

std::unique_ptr<ConfigurationCosts> costs_of_job(const Job& job, const Profile* profile,
                                                 int cores) {
  return uneven_configurations(job, costs_if_alike(job, profile, cores));
}

}  // namespace pipewright::planner
