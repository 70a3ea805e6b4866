#include "planner/configurations/policy.hpp"

namespace pipewright::planner {

CommPolicy policy_for(const Job& job, const Schedule& schedule) {
  if (job.strategy.policy) return *job.strategy.policy;
  return schedule.policy.empty() ? CommPolicy{} : comm_policy_preset(schedule.policy);
}

}  // namespace pipewright::planner
