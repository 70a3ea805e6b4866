// What the stages of a graph's pipeline cost on a cluster, operator by operator.
#pragma once

#include "core/spmd/graph/pipeline_steps.hpp"
#include "planner/tensor_placement/mesh_prices.hpp"

namespace pipewright::planner::tensor_placement {

/// Rank r of a mesh is device r. Each stage's operators and the moves inside it, on the first
/// process of its mesh; its messages go from there to the first of the next one's.
CostTable stage_costs(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                      const spmd::TrainingSteps& steps, const Cluster& cluster);

}  // namespace pipewright::planner::tensor_placement
