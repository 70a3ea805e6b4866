// What a process computes for an operator whose tensors are divided: operations and traffic of its
// memory, forward and backward.
#pragma once

#include "core/spmd/graph/graph.hpp"
#include "planner/tensor_placement/mesh_prices.hpp"

namespace pipewright::planner::tensor_placement {

struct OperatorNanoseconds {
  double forward = 0, backward = 0;  // computing
  /// What the operator sums among processes itself: a loss over divided classes.
  double own_collectives = 0;
};

/// Of the first process, which has the largest parts. Layouts are one after the other, as the
/// tensors are; `gradients` says of each input whether its gradient is asked for.
OperatorNanoseconds work_of(const spmd::OperatorGraph& graph, std::size_t at,
                            const std::vector<spmd::Layout>& inputs,
                            const std::vector<spmd::Layout>& outputs,
                            const std::vector<bool>& gradients, const MeshPrices& prices);

}  // namespace pipewright::planner::tensor_placement
