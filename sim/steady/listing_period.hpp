// After how many periods of an order lowering's passes over the ranks repeat themselves, so that
// the transfer ends that they add repeat too (docs/semantics.md §1.1).
#pragma once

#include <optional>

#include "core/order/order.hpp"
#include "sim/steady/order_middle.hpp"

namespace pipewright::sim {

/// What a pass does follows from how far each rank has come and from the cells that are next. So
/// two moments between passes at which each rank stands the same number of periods further, both
/// inside one phase, show that the passes between them repeat while the phase does. Returns a
/// number of periods that is such a one in every phase; nullopt: some phase has no such moments.
/// An order with transfer ends is taken as written: 1.
std::optional<int> listing_period(const Order& order, const OrderMiddle& middle);

}  // namespace pipewright::sim
