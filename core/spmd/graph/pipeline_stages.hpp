// A completed graph as the stages of a pipeline: what is on one mesh and in one chunk.
#pragma once

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

struct PipelineStages {
  std::vector<std::size_t> meshes;  // of the graph's, one for each rank of the pipeline
  int chunks = 1;                   // of each
  PartPlacement placement = PartPlacement::OneEach;
  std::vector<std::size_t> of_operators;  // the stage, which counts from the inputs

  std::size_t count() const { return meshes.size() * static_cast<std::size_t>(chunks); }
  /// The pipeline's rank that has a stage.
  std::size_t rank_of(std::size_t stage) const;
  /// Stage by stage, and otherwise as ordered_operators() has them.
  std::vector<std::size_t> order_of(const OperatorGraph& completed) const;
};

/// Throws InputError, with the names: stages that share processes, a chunk without operators, a
/// tensor that lies elsewhere than it is made, an operator that takes from a later stage.
PipelineStages pipeline_stages(const OperatorGraph& completed);

}  // namespace pipewright::spmd
