// What operators compute from the parts that a process has, forward and backward, with the kernels
// of the CPU (exec/layers/ops.hpp). Products are canonical: an element has the same bits whatever
// other rows and columns the process has.
#pragma once

#include <functional>
#include <map>
#include <string>
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
  std::vector<LocalArray*> outputs = {};  // forward: zeros, to be filled; they have their parts
  std::vector<const LocalArray*> of_outputs = {};
  std::vector<LocalArray*> gradients = {};  // added to
  /// Where the classes of logits are divided: the processes that have the others, in their order.
  collectives::Group* classes = nullptr;
};

/// What the operators of the rule local_map compute, by the name in their attribute: inputs to
/// outputs, and gradients of outputs to those of inputs, each on the parts that the process has, as
/// the operator is annotated. LocalArray::part says where in the whole tensors these lie. An output
/// that is annotated P(sum) is made of each process's summand; its gradient comes whole.
struct LocalFunction {
  std::function<void(const LocalCall&)> forward = {};
  std::function<void(const LocalCall&)> backward = {};  // none: no gradient goes through
};
using LocalFunctions = std::map<std::string, LocalFunction, std::less<>>;

/// Of an operator of the rule local_map, else nullptr. Throws InputError where it names none of
/// these.
const LocalFunction* function_of(const spmd::GraphOperator& one, const LocalFunctions& functions);

inline constexpr std::size_t kAllPlaces = ~std::size_t{0};

struct LocalOperator {
  std::string_view rule;
  void (*forward)(const LocalCall&) = nullptr;
  void (*backward)(const LocalCall&) = nullptr;
  /// The output from which gradients come; others have none.
  std::size_t differentiated = kAllPlaces;
  /// So many inputs and outputs, the first ones, have to be there.
  std::size_t inputs = kAllPlaces, outputs = kAllPlaces;
  /// "is computed here with …", where attributes or shapes are others than these compute; or null.
  const char* (*refusal)(const spmd::OperatorGraph&, const spmd::GraphOperator&) = nullptr;
};

/// Throws InputError, naming the operator: there is none, or its tensors, attributes or shapes are
/// others than these compute.
const LocalOperator& local_operator(const spmd::GraphOperator& one);
void require_local(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one);
/// In alphabetical order.
std::vector<std::string_view> local_operator_names();

}  // namespace pipewright::exec::graphs
