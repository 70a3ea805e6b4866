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
/// "softmax_with_cross_entropy" 1 (a part of the classes), "reshape2" 0; all others are "default"
/// 0, also those whose layouts choose nothing and that have a name of their own there.
Implementation implementation_of(const GraphOperator& one, const std::vector<Layout>& inputs,
                                 const std::vector<Layout>& outputs);

}  // namespace pipewright::spmd
