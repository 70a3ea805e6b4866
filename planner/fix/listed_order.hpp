// An order's computations and its transfer ends, apart and together: what the fixes start from.
// Pure functions, O(cells).
#pragma once

#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright::planner {

/// The order as each rank takes it under the policy: the transfer ends that lowering adds are
/// written, receives stand where `post` moves them, runs as `run_order` sorts them, empty cells are
/// gone. Lowered under as_written(policy) it is the same Program. An order that holds calls stays
/// as it is written.
Order listed_order(const Order& order, const CommPolicy& policy);

/// The policy for an order whose lists are already those of `policy`: post = early, run_order =
/// as-lowered, all else unchanged.
CommPolicy as_written(const CommPolicy& policy);

/// The computations alone, so that lowering places the transfers again (docs/semantics.md §1.1).
Order computations_of(const Order& order);

/// A Program's lists as an order.
Order order_of_program(const Program& program);

/// Puts the waits for sends of `listed` at the ends of the same ranks' lists in `order`, which
/// holds the sends. There they hold up nothing else.
void put_waits_last(Order& order, const Order& listed);

}  // namespace pipewright::planner
