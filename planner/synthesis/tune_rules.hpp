// Tunes the rules of the list scheduler: the usual rules first, then random changes of some rules
// of some ranks, kept where the order does not get worse. A few hundred numbers decide an order of
// any length this way, so the search does not slow down with the number of micro-batches.
#pragma once

#include <cstdint>
#include <random>

#include "planner/synthesis/construct.hpp"
#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

/// Places about `steps` actions in trials. Stops early at the lower bound. Deterministic for the
/// state of `dice`.
void tune_rules(Search& search, std::mt19937_64& dice, std::int64_t steps);

}  // namespace pipewright::planner::synthesis
