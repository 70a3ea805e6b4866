// The transfer ends that an order writes itself: each on the rank of its stage, each tensor that
// goes to another rank with one SEND and one RECV (docs/semantics.md §7).
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// What is wrong with them, in sentences that begin with a place; at most `most`. Empty where the
/// order writes none. O(actions log actions).
std::vector<std::string> transfer_problems(const Order& order, std::size_t most);

}  // namespace pipewright
