// Of what the actions of a graph's stages consist: what operators compute, and what the processes
// of a mesh tell one another, as the parts that a Program's actions have (docs/semantics.md §3.4).
#pragma once

#include "core/order/parts.hpp"
#include "core/spmd/graph/pipeline_steps.hpp"

namespace pipewright::spmd {

/// Without a weight.
struct StagePart {
  Call call;              // of kind Part: a computation
  std::size_t step = 0;   // of TrainingSteps::steps
  std::size_t place = 0;  // of a Move's plan
};

/// Of a Backward, by place of the operator's inputs: whether an I, W or B (`kind`) computes that
/// gradient. W computes those of parameters, I the others.
std::vector<bool> gradients_in(ActionKind kind, const OperatorGraph& completed,
                               const TrainingSteps& steps, const TrainingStep& backward);

/// What the processes of a stage differ in, where all stages' meshes are alike: the dimensions with
/// two processes or more, the last one first.
std::optional<std::vector<MeshAxis>> axes_of_stages(const OperatorGraph& completed,
                                                    const PipelineStages& stages);

/// Of an F, I, W or B of the stage, in the order in which a process does them for each micro-batch.
/// What is done once in a step is none of them: to bring parameters to where they are used, to
/// update them. A collective has the axes' names as its group.
std::vector<StagePart> parts_of_stage(const OperatorGraph& completed, const TrainingSteps& steps,
                                      const PipelineSteps& sorted, std::size_t stage,
                                      ActionKind kind);

}  // namespace pipewright::spmd
