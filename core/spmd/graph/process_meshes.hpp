// On which mesh each operator computes and each tensor lies, and in which chunk of a pipeline.
#pragma once

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

/// Layers that follow one another, and what stands around them: a chunk of a stage.
struct PipelinePart {
  std::size_t stage = 0;
  int chunk = 0;
  std::size_t mesh = 0;  // the stage's, of the graph's
  std::vector<std::string> layers = {};
};

/// By operator and by tensor.
struct GraphMeshes {
  std::vector<std::size_t> of_operators, of_tensors;  // of the graph's meshes
  std::vector<int> operator_chunks, tensor_chunks;
  /// Where a pipeline has chunks: its parts, and by operator its part; by tensor the operator from
  /// which it has its chunk.
  std::vector<PipelinePart> parts = {};
  std::vector<std::size_t> part_of_operators = {};
  std::vector<std::optional<std::size_t>> chunk_from = {};
};

/// Annotations stay. An annotated tensor gives its mesh to the first operator that takes it; other
/// operators take that of the last operator that one of their inputs comes from, or, where none has
/// one, of the first that takes their outputs. A tensor lies where it is made, or where it is taken
/// first. Chunks are 0 where nothing says otherwise, an annotation or the graph's pipeline
/// (core/spmd/graph/chunks). `order` is ordered_operators(). Throws InputError for what no mesh
/// reaches.
GraphMeshes completed_meshes(const OperatorGraph& graph, const std::vector<std::size_t>& order);

/// Whether a layout on one says the same on the other: as many processes in the same dimensions.
bool are_alike(const ProcessMesh& one, const ProcessMesh& other);

}  // namespace pipewright::spmd
