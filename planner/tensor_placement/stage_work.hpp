// What the stages of a graph's pipeline do on a cluster, and how long it takes.
#pragma once

#include "core/spmd/graph/stage_parts.hpp"
#include "planner/tensor_placement/mesh_prices.hpp"

namespace pipewright::planner::tensor_placement {

/// Where actions have parts, their costs are those of the computations among these
/// (docs/semantics.md §3.4); otherwise what a mesh's processes tell one another is in the costs.
struct StageWork {
  CostTable costs;
  std::vector<MeshAxis> mesh = {};
  std::vector<ActionParts> parts = {};  // of the F, I, W and B of every stage, or of none
};

/// Rank r of a mesh is device r. Each stage as the first process of its mesh does it; its messages
/// go from there to the first of the next one's. In parts only where the stages' meshes are alike.
StageWork stage_work(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                     const spmd::TrainingSteps& steps, const Cluster& cluster, bool in_parts);

}  // namespace pipewright::planner::tensor_placement
