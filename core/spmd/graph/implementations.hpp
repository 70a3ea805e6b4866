// The names by which PaddlePaddle's static mode calls what an operator does with divided tensors.
#pragma once

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

struct Implementation {
  std::string type;
  int index = 0;
};

/// As its distributed operators choose by the layouts that an operator computes with: "matmul_v2" 0
/// (by columns), 1 (by rows) or 2, "lookup_table_v2" 0 (a part of the rows),
/// "softmax_with_cross_entropy" 1 (a part of the classes); where layouts choose nothing, 0 of what
/// it has for the operator ("reshape2", "softmax", "elementwise"), or "default" 0.
Implementation implementation_of(const GraphOperator& one, const std::vector<Layout>& inputs,
                                 const std::vector<Layout>& outputs);

}  // namespace pipewright::spmd
