// Random orders in which replicas divide gradients and weights (section 3.2) for the property
// tests.
#pragma once

#include "tests/reference/order.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::reference {

/// Names a stage of ZeRO, and puts more REDUCE_GRADs, UNSHARDs and RESHARDs of some stages into the
/// lists of all ranks that compute them, where they stand in none the same way. Many such orders
/// hang or are invalid.
void add_sharding(Dice& dice, Order& order, Heading& heading);

}  // namespace pipewright::reference
