#include "core/spmd/graph/pipeline_steps.hpp"

#include <algorithm>

namespace pipewright::spmd {
namespace {

using Kind = TrainingStep::Kind;

class Sorting {
 public:
  Sorting(const OperatorGraph& graph, const PipelineStages& stages, const TrainingSteps& steps)
      : graph_(graph), stages_(stages), steps_(steps), producers_(producers_of(graph)) {
    result_.forward.resize(stages.count());
    result_.backward.resize(stages.count());
    result_.message_of_step.assign(steps.steps.size(), PipelineSteps::kNoMessage);
  }

  PipelineSteps sorted() && {
    for (std::size_t at = 0; at < steps_.steps.size(); ++at) {
      const TrainingStep& step = steps_.steps[at];
      went_back_ = went_back_ || step.kind == Kind::Backward || is_of_gradient(step);
      if (step.kind == Kind::Move) {
        sort_move(at);
      } else if (step.kind == Kind::Update) {
        result_.after.push_back(at);
      } else {
        of_turn(step).push_back(at);
      }
    }
    return std::move(result_);
  }

 private:
  const ProcessMesh& mesh_of(std::size_t array) const {
    return graph_.meshes[steps_.arrays[array].mesh].mesh;
  }
  bool is_of_gradient(const TrainingStep& step) const {
    return step.kind == Kind::Move && steps_.arrays[*step.outputs[0]].is_gradient;
  }
  std::size_t stage_of(std::size_t one) const { return stages_.of_operators[one]; }

  StepNumbers& of_turn(const TrainingStep& step) {
    const std::size_t stage = stage_of(*step.turn);
    return went_back_ ? result_.backward[stage] : result_.forward[stage];
  }

  void sort_move(std::size_t at) {
    const TrainingStep& step = steps_.steps[at];
    const std::size_t from = *step.inputs[0], to = *step.outputs[0];
    const bool is_parameter = graph_.tensors[step.at].role == TensorRole::Parameter;
    const bool is_gradient = is_of_gradient(step);
    const bool stays = mesh_of(from) == mesh_of(to);
    if (is_parameter && (is_gradient || !step.turn)) {
      result_.after.push_back(at);
    } else if (stays) {
      of_turn(step).push_back(at);
    } else if (is_parameter) {
      result_.before.push_back(at);
    } else if (!producers_[step.at] && !is_gradient) {
      result_.data.push_back(at);
    } else {
      of_turn(step).push_back(at);
      add_message(at, is_gradient ? last_giver(at) : stage_of(*producers_[step.at]), is_gradient);
    }
  }

  /// The stage that adds to a gradient last before it moves.
  std::size_t last_giver(std::size_t move) const {
    const std::size_t array = *steps_.steps[move].inputs[0];
    for (std::size_t at = move; at-- > 0;) {
      const TrainingStep& step = steps_.steps[at];
      if (step.kind == Kind::Backward &&
          std::ranges::count(step.gradients, ArrayPlace(array)) > 0) {
        return stage_of(step.at);
      }
    }
    return stage_of(*steps_.steps[move].turn);
  }

  void add_message(std::size_t at, std::size_t from, bool is_gradient) {
    const TrainingStep& step = steps_.steps[at];
    const ProcessMesh& before = mesh_of(*step.inputs[0]);
    std::size_t first = 0;
    while (step.plan.steps[first].after.mesh == before) ++first;
    result_.message_of_step[at] = result_.messages.size();
    result_.messages.push_back({.step = at,
                                .from = from,
                                .to = stage_of(*step.turn),
                                .first = first,
                                .is_gradient = is_gradient});
  }

  const OperatorGraph& graph_;
  const PipelineStages& stages_;
  const TrainingSteps& steps_;
  std::vector<std::optional<std::size_t>> producers_;
  bool went_back_ = false;  // the steps from here on
  PipelineSteps result_;
};

}  // namespace

PipelineSteps pipeline_steps(const OperatorGraph& completed, const PipelineStages& stages,
                             const TrainingSteps& steps) {
  return Sorting(completed, stages, steps).sorted();
}

}  // namespace pipewright::spmd
