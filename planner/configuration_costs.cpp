#include "planner/configuration_costs.hpp"

namespace pipewright::planner {

std::unique_ptr<ConfigurationCosts> costs_of_job(const Job& job, const Profile* profile,
                                                 int cores) {
  if (profile == nullptr) {
    if (const auto model = estimated_architecture(job))
      return estimated_configurations(job, *model);
  }
  return layer_configurations(job, profile, cores);
}

}  // namespace pipewright::planner
