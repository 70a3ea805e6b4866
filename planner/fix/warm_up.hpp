// The fix that changes the computations: one more forward before the first backward, which is what
// Paddle's fix of its VPP pass adds to the split jobs (PaddlePaddle/Paddle pull 71104). It costs
// the rank one more live activation. Pure functions.
#pragma once

#include <vector>

#include "core/order/order.hpp"

namespace pipewright::planner {

/// Whether the rank's list has a backward with forwards after it, and nothing that fixes its order
/// (overlapped pairs, weight versions, written transfer ends).
bool can_warm_up(const Order& computations, RankId rank);

/// Moves each forward after the first backward to the place of the forward before it, and the first
/// of them to before the first backward: from there on the rank runs one forward further ahead.
/// Forwards keep their order, and so does everything else. Only where can_warm_up().
void warm_up_once_more(Order& computations, RankId rank);

}  // namespace pipewright::planner
