#include "planner/configurations/policy.hpp"

#include <algorithm>

namespace pipewright::planner {

CommPolicy policy_for(const Job& job, const Schedule& schedule) {
  if (job.strategy.policy) return *job.strategy.policy;
  return schedule.policy.empty() ? CommPolicy{} : comm_policy_preset(schedule.policy);
}

Sharding sharding_of(const Job& job, const ParallelSetup& parallel) {
  const int degree = job.strategy.sharding_degree;
  const bool in_groups = parallel.zero > 0 && degree > 1;
  return {parallel.zero, in_groups ? std::max(1, parallel.data / degree) : 1,
          job.strategy.unshard_lookahead};
}

}  // namespace pipewright::planner
