// Data parallel beside pipeline: a pipeline's order becomes that of several replicas of the
// pipeline, each with micro-batches of its own, in one Program (docs/semantics.md §1.4). Pure
// function.
#pragma once

#include "core/order/order.hpp"

namespace pipewright::planner {

/// With P ranks and M micro-batches in `pipeline`: rank d*P + r does for the micro-batches d*M to
/// (d+1)*M - 1 what rank r does for 0 to M - 1. One replica: the order as it is. Throws InputError
/// for an asynchronous order, whose updates would have to be reduced one by one, and beyond 2^24
/// micro-batches.
Order replicate(const Order& pipeline, int replicas);

}  // namespace pipewright::planner
