// On which mesh each operator computes and each tensor lies, and in which chunk of a pipeline.
#pragma once

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

/// By operator and by tensor.
struct GraphMeshes {
  std::vector<std::size_t> of_operators, of_tensors;  // of the graph's meshes
  std::vector<int> operator_chunks, tensor_chunks;
};

/// Annotations stay. An annotated tensor gives its mesh to the first operator that takes it; other
/// operators take that of the last operator that one of their inputs comes from, or, where none has
/// one, of the first that takes their outputs. A tensor lies where it is made, or where it is taken
/// first. `order` is ordered_operators(). Throws InputError for what no mesh reaches.
GraphMeshes completed_meshes(const OperatorGraph& graph, const std::vector<std::size_t>& order);

/// Whether a layout on one says the same on the other: as many processes in the same dimensions.
bool are_alike(const ProcessMesh& one, const ProcessMesh& other);

}  // namespace pipewright::spmd
