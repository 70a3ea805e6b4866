// The steps of a graph's training sorted by the stages of a pipeline: what is done once in a step,
// what each stage does with every micro-batch, and what goes from one stage to another.
#pragma once

#include "core/spmd/graph/pipeline_stages.hpp"
#include "core/spmd/graph/training_steps.hpp"

namespace pipewright::spmd {

using StepNumbers = std::vector<std::size_t>;  // of TrainingSteps::steps, in their order

/// A Move between meshes, for every micro-batch: `first` steps of its plan on the mesh where it
/// begins, then an exchange, the others where it ends.
struct StageMessage {
  std::size_t step = 0;
  std::size_t from = 0, to = 0;  // stages
  std::size_t first = 0;
  bool is_gradient = false;
};

struct PipelineSteps {
  StepNumbers before;                          // once: parameters that other meshes take, too
  StepNumbers data;                            // of each micro-batch, before all of them
  std::vector<StepNumbers> forward, backward;  // by stage
  StepNumbers after;  // once: gradients of parameters to where these lie, and updates
  std::vector<StageMessage> messages;
  std::vector<std::size_t> message_of_step;  // kNoMessage: none

  static constexpr std::size_t kNoMessage = ~std::size_t{0};
};

/// `steps` are in stages.order_of().
PipelineSteps pipeline_steps(const OperatorGraph& completed, const PipelineStages& stages,
                             const TrainingSteps& steps);

}  // namespace pipewright::spmd
