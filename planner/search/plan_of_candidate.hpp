// From the row that won to a complete plan, with the reasons in sentences. Pure functions.
#pragma once

#include "planner/configurations/costs.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// result.ranked[0] as a plan. `memory_limit` is the one that was searched under, 0: none.
Plan plan_of_candidate(const Job& job, const ConfigurationCosts& costs, const SearchResult& result,
                       Bytes memory_limit);
/// result.ranked[row] as if it had won, under the limit of `costs`: a plan with its own stages,
/// costs and order.
Plan plan_of_row(const Job& job, const ConfigurationCosts& costs, const SearchResult& result,
                 std::size_t row);

}  // namespace pipewright::planner
