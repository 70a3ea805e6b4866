// Empty cells in an order, where ranks wait. Lowering walks through an order in passes of one cell
// a rank and posts a receive at the receiver's place in the pass in which the message is made
// (docs/semantics.md section 1.1). In an order without empty cells a rank that waits is ahead of
// its real place in time, and its receives stand too late in its list. Pure function.
#pragma once

#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

/// The same order of the same actions, each in the pass that its start under preset `ideal` asks
/// for; `request`: what the order was synthesised for. At most four times as many cells.
Order with_idle_slots(const SynthesisRequest& request, const Order& order);

}  // namespace pipewright::planner
