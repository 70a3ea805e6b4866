// Random calls (section 3.3) for the property tests.
#pragma once

#include "tests/reference/order.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::reference {

/// Puts calls of a few groups, transfers that name their ranks, and HOST_SYNCs between the cells of
/// an order; mostly so that they end, sometimes with a member that is missing, moved or for
/// something else. Returns the groups whose ranks are named.
[[nodiscard]] Groups add_calls(Dice& dice, Order& order);

}  // namespace pipewright::reference
