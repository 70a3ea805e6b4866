#include "planner/tensor_placement/stage_costs.hpp"

#include <cmath>

#include "planner/tensor_placement/step_prices.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

using spmd::ArrayPlace;
using spmd::PipelineSteps;
using spmd::TrainingStep;

class Costing {
 public:
  Costing(const spmd::OperatorGraph& graph, const spmd::PipelineStages& stages,
          const spmd::TrainingSteps& steps, const Cluster& cluster)
      : graph_(graph),
        stages_(stages),
        steps_(steps),
        prices_(graph, steps, cluster),
        sorted_(pipeline_steps(graph, stages, steps)) {
    for (const std::size_t mesh : stages.meshes) {
      first_ranks_.push_back(graph.meshes[mesh].mesh.ranks.front());
    }
    set_routes(costs_, cluster, first_ranks_);
  }

  CostTable table() && {
    for (std::size_t stage = 0; stage < stages_.count(); ++stage)
      costs_.stages.push_back(of(stage));
    costs_.activation_bytes.resize(stages_.count() - 1);
    costs_.gradient_bytes.resize(stages_.count() - 1);
    for (const spmd::StageMessage& one : sorted_.messages) {
      const Bytes bytes(steps_.steps[one.step].plan.steps[one.first].bytes);
      if (one.is_gradient) {
        costs_.gradient_bytes[one.from - 1] += bytes;
      } else {
        costs_.activation_bytes[one.from] += bytes;
      }
    }
    costs_.source = "operators";
    return std::move(costs_);
  }

 private:
  StageCosts of(std::size_t stage) const {
    double f = 0, i = 0, w = 0, b = 0;
    for (const std::size_t at : sorted_.forward[stage]) {
      const TrainingStep& step = steps_.steps[at];
      f += step.kind == TrainingStep::Kind::Move ? of_move(at) : prices_.forward(step);
    }
    for (const std::size_t at : sorted_.backward[stage]) {
      const TrainingStep& step = steps_.steps[at];
      if (step.kind == TrainingStep::Kind::Move) {
        const double ns = of_move(at);
        i += ns;
        b += ns;
        continue;
      }
      const auto is_parameter = [&](const ArrayPlace& place) {
        const std::size_t tensor = steps_.arrays[*place].tensor;
        return graph_.tensors[tensor].role == spmd::TensorRole::Parameter;
      };
      std::vector<bool> all, of_inputs, of_parameters;
      for (const ArrayPlace& place : step.gradients) {
        all.push_back(place.has_value());
        of_parameters.push_back(place && is_parameter(place));
        of_inputs.push_back(place && !is_parameter(place));
      }
      b += prices_.backward(step, all);
      i += prices_.backward(step, of_inputs);
      w += prices_.backward(step, of_parameters);
    }
    const auto rounded = [](double ns) { return Nanoseconds(std::llround(ns)); };
    return {.f = rounded(f), .i = rounded(i), .w = rounded(w), .b = rounded(b)};
  }

  /// The steps of it that are inside the stage; of one that comes from another those after its
  /// message.
  double of_move(std::size_t at) const {
    const std::size_t message = sorted_.message_of_step[at];
    const bool arrives = message != PipelineSteps::kNoMessage;
    return prices_.move(steps_.steps[at], arrives ? sorted_.messages[message].first + 1 : 0);
  }

  const spmd::OperatorGraph& graph_;
  const spmd::PipelineStages& stages_;
  const spmd::TrainingSteps& steps_;
  const StepPrices prices_;
  const PipelineSteps sorted_;
  std::vector<int> first_ranks_;
  CostTable costs_;
};

}  // namespace

CostTable stage_costs(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                      const spmd::TrainingSteps& steps, const Cluster& cluster) {
  return Costing(completed, stages, steps, cluster).table();
}

}  // namespace pipewright::planner::tensor_placement
