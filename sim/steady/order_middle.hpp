// Where an order repeats itself: of each rank the cells that come again and again, each time for
// micro-batches that are later by the same number.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright::sim {

/// Of a rank's list the places [begin, end): each of them, but for the last `period`, holds what
/// stands `period` places later, for the micro-batch before.
struct Middle {
  std::size_t begin = 0, end = 0, period = 0;
};

/// By rank.
struct OrderMiddle {
  int micro_batches = 0;  // of one period
  std::vector<Middle> ranks;
};

/// `longer` is the same rule's order for more micro-batches. Its middle, if on each rank `longer`
/// is `order` with one period put in, wherever in the middle, and with all that stands behind it
/// later by a period's micro-batches; nullopt: it is not, or has fewer than two periods.
std::optional<OrderMiddle> middle_of(const Order& order, const Order& longer);

}  // namespace pipewright::sim
