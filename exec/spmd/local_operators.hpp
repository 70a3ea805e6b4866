// What operators compute from the parts that a process has, forward and backward, with the kernels
// of the CPU (exec/layers/ops.hpp). Products are canonical: an element has the same bits whatever
// other rows and columns the process has.
#pragma once

#include <string_view>
#include <vector>

#include "core/spmd/graph/graph.hpp"
#include "exec/collectives/group.hpp"
#include "exec/spmd/local_array.hpp"

namespace pipewright::exec::graphs {

/// Arrays are by place; null where one is left out, has no gradient, or none is wanted.
struct LocalCall {
  const spmd::GraphOperator& one;
  std::vector<const LocalArray*> inputs = {};
  std::vector<LocalArray*> outputs = {};  // forward: to be filled; they have their parts
  std::vector<const LocalArray*> of_outputs = {};
  std::vector<LocalArray*> gradients = {};  // added to
  /// Where the classes of logits are divided: the processes that have the others, in their order.
  collectives::Group* classes = nullptr;
};

struct LocalOperator {
  std::string_view rule;
  void (*forward)(const LocalCall&) = nullptr;
  void (*backward)(const LocalCall&) = nullptr;
};

/// Throws InputError, naming the operator: there is none, or its attributes or shapes are others
/// than these compute.
const LocalOperator& local_operator(const spmd::GraphOperator& one);
void require_local(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one);

}  // namespace pipewright::exec::graphs
