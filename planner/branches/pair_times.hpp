// How long an overlapped pair takes whose actions consist of computations and messages: one
// computes while the other communicates. The engine itself times each pair, alone on a rank: all of
// its parts wait for the inputs of both actions (docs/semantics.md §3.4), so that inside any
// Program it takes as long. Pure function.
#pragma once

#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "planner/estimate/stage_parts.hpp"

namespace pipewright::planner {

/// The table with CostTable::pairs for the pairs of the order. `mesh`: of the devices that a rank
/// stands for.
CostTable with_pair_times(CostTable table, const Order& order, const StageParts& inside,
                          const std::vector<MeshAxis>& mesh, const CommPolicy& policy);

}  // namespace pipewright::planner
