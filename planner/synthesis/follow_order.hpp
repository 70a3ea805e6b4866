// Tunes an order that is there already: its start times become the times at which actions are due,
// the list scheduler takes what is due first, and random changes shift when actions of a stage, of
// several stages or of some micro-batches are due. So the list scheduler also improves orders that
// no rule gives, named schedules among them.
#pragma once

#include <cstdint>
#include <random>

#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

/// Starts from search.best and places about `steps` actions in trials. Deterministic for the state
/// of `dice`.
void follow_order(Search& search, std::mt19937_64& dice, std::int64_t steps);

}  // namespace pipewright::planner::synthesis
