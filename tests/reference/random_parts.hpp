// Random parts of actions (section 3.4) for the property tests.
#pragma once

#include "tests/reference/order.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::reference {

/// Lists of parts for some of the stages and kinds that the order computes, with calls of the axes
/// of a small mesh and sometimes of a group of several ranks.
void add_parts(Dice& dice, const Order& order, Heading& heading);

}  // namespace pipewright::reference
