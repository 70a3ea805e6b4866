// Local search on an order itself: moves single actions along the critical path, the chain of
// actions without idle time that ends with the last action of the rank which gives the value.
// Unlike the rules it can end with an order that no rule gives, and it can begin with a named
// schedule.
#pragma once

#include <cstdint>
#include <random>

#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

/// Starts from search.best and times at most `steps` actions. An order that is as good is accepted
/// too: long plateaus are crossed that way. Deterministic for the state of `dice`.
void improve(Search& search, std::mt19937_64& dice, std::int64_t steps);

}  // namespace pipewright::planner::synthesis
