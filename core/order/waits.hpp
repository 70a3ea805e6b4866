// The waits that an order writes: each needs, earlier in its rank's list, a SEND or REDUCE_GRAD of
// its own that it waits for (docs/semantics.md §7).
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// What is wrong with them, in sentences that begin with a place; at most `most`. O(actions log
/// actions).
std::vector<std::string> wait_problems(const Order& order, std::size_t most);

}  // namespace pipewright
