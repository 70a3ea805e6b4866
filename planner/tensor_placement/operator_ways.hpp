// In which ways an operator can compute with divided tensors.
#pragma once

#include "core/spmd/graph/graph.hpp"
#include "planner/tensor_placement/operator_work.hpp"

namespace pipewright::planner::tensor_placement {

/// Layouts are one after the other, as tensors_of() has the tensors.
struct OperatorWay {
  std::vector<spmd::Layout> inputs, outputs;
  /// By input, as bits: along these mesh dimensions its gradient comes as partial sums, because the
  /// operator is divided along them and the input is not.
  std::vector<unsigned> partial_gradients = {};
  OperatorNanoseconds ns = {};
};

/// Whether a gradient is asked for, by tensor: of constants, of whole numbers and of what is made
/// of them alone it is not.
std::vector<bool> gradients_asked_for(const spmd::OperatorGraph& graph,
                                      const std::vector<std::size_t>& order);

/// All ways in which each mesh dimension divides one letter of the operator's equation or none, and
/// that its rule and its annotation leave as they are, with that of `completed` (the operator of
/// the completed graph), where it is not among them. No process is left without elements.
std::vector<OperatorWay> ways_of(const spmd::OperatorGraph& graph, std::size_t at,
                                 const spmd::GraphOperator& completed,
                                 const std::vector<bool>& gradients, const MeshPrices& prices);

/// As ways_of() has them: all layouts of a tensor without partial values.
std::vector<spmd::Layout> whole_and_divided(const spmd::Shape& shape,
                                            const spmd::ProcessMesh& mesh);

}  // namespace pipewright::planner::tensor_placement
