// From the row that won to a complete plan, with the reasons in sentences. Pure functions.
#pragma once

#include "core/order/comm_policy.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/search/configuration_costs.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// The job's policy, else the schedule's own, else a plan's default.
CommPolicy policy_for(const Job& job, const Schedule& schedule);

/// result.ranked[0] as a plan. `memory_limit` is the one that was searched under, 0: none.
Plan plan_of_candidate(const Job& job, const ConfigurationCosts& costs, const SearchResult& result,
                       Bytes memory_limit);

}  // namespace pipewright::planner
