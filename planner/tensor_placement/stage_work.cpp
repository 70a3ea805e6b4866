#include "planner/tensor_placement/stage_work.hpp"

#include <algorithm>
#include <cmath>

#include "planner/tensor_placement/step_prices.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

using spmd::PipelineSteps;
using spmd::StagePart;
using spmd::TrainingStep;

class Costing {
 public:
  Costing(const spmd::OperatorGraph& graph, const spmd::PipelineStages& stages,
          const spmd::TrainingSteps& steps, const Cluster& cluster, bool in_parts)
      : graph_(graph),
        stages_(stages),
        steps_(steps),
        prices_(graph, steps, cluster),
        sorted_(pipeline_steps(graph, stages, steps)) {
    if (in_parts) axes_ = axes_of_stages(graph, stages);
    std::vector<int> first_ranks;
    for (const std::size_t mesh : stages.meshes)
      first_ranks.push_back(graph.meshes[mesh].mesh.ranks.front());
    set_routes(work_.costs, cluster, first_ranks);
  }

  StageWork work() && {
    work_.mesh = axes_.value_or(std::vector<MeshAxis>());
    for (std::size_t stage = 0; stage < stages_.count(); ++stage) {
      work_.costs.stages.push_back({.f = of(stage, ActionKind::F),
                                    .i = of(stage, ActionKind::I),
                                    .w = of(stage, ActionKind::W),
                                    .b = of(stage, ActionKind::B)});
    }
    add_messages();
    work_.costs.source = "operators";
    return std::move(work_);
  }

 private:
  /// Its cost; its parts are added where there are any.
  Nanoseconds of(std::size_t stage, ActionKind kind) {
    ActionParts action{.stage = StageId(static_cast<int>(stage)), .kind = kind, .parts = {}};
    double computed = 0, called = 0;
    for (const StagePart& one : parts_of_stage(graph_, steps_, sorted_, stage, kind)) {
      const bool computes = one.call.kind == ActionKind::Part;
      double& sum = computes ? computed : called;
      const double before = sum;
      sum += price(one, kind);
      // Rounded together, so that many of little time take what they should.
      const std::int64_t weight = std::llround(sum) - std::llround(before);
      action.parts.push_back({.call = one.call, .weight = std::max<std::int64_t>(1, weight)});
    }
    if (!axes_ || computed == 0) return Nanoseconds(std::llround(computed + called));
    Nanoseconds cost(0);
    for (const Part& part : action.parts) {
      if (part.is_computation()) cost += Nanoseconds(part.weight);
    }
    work_.parts.push_back(std::move(action));
    return cost;
  }

  double price(const StagePart& part, ActionKind kind) const {
    const TrainingStep& step = steps_.steps[part.step];
    const bool computes = part.call.kind == ActionKind::Part;
    if (step.kind == TrainingStep::Kind::Move) return prices_.move(step, part.place);
    if (step.kind == TrainingStep::Kind::Backward)
      return prices_.backward(step, gradients_in(kind, graph_, steps_, step));
    const OperatorNanoseconds ns = prices_.forward(step);
    constexpr double kSumsOfClasses = 2;
    return computes ? ns.forward : ns.own_collectives / kSumsOfClasses;
  }

  void add_messages() {
    std::vector<Bytes>& activations = work_.costs.activation_bytes;
    std::vector<Bytes>& gradients = work_.costs.gradient_bytes;
    activations.resize(stages_.count() - 1);
    gradients.resize(stages_.count() - 1);
    for (const spmd::StageMessage& one : sorted_.messages) {
      const Bytes bytes(steps_.steps[one.step].plan.steps[one.first].bytes);
      (one.is_gradient ? gradients[one.from - 1] : activations[one.from]) += bytes;
    }
  }

  const spmd::OperatorGraph& graph_;
  const spmd::PipelineStages& stages_;
  const spmd::TrainingSteps& steps_;
  const StepPrices prices_;
  const PipelineSteps sorted_;
  std::optional<std::vector<MeshAxis>> axes_;  // none: no parts
  StageWork work_;
};

}  // namespace

StageWork stage_work(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                     const spmd::TrainingSteps& steps, const Cluster& cluster, bool in_parts) {
  return Costing(completed, stages, steps, cluster, in_parts).work();
}

}  // namespace pipewright::planner::tensor_placement
