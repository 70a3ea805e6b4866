// The forwards that zbvpp runs before the first gradient.
#pragma once

#include "planner/schedules/growing_order.hpp"

namespace pipewright::planner {

/// Takes the first micro-batch through all chunks of an order that is still empty, and fills the
/// time until each chunk's first forward, and until the first I, with forwards of the chunks
/// before it. False if memory runs out on the way.
bool run_first_forwards(GrowingOrder& order, const PlannedCosts& costs);

}  // namespace pipewright::planner
