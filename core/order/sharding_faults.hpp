// What an order gets wrong where replicas divide gradients and weights among them
// (docs/semantics.md §3.2, §7). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// Groups of unequal size, gradients that no REDUCE_GRAD takes, and computations without their
/// weights: of the last two a sentence for the first of each stage and rank. O(actions).
std::vector<std::string> sharding_problems(const Order& order);

}  // namespace pipewright
