#include "planner/tensor_placement/stage_costs.hpp"

#include <cmath>

#include "core/order/element_type.hpp"
#include "planner/tensor_placement/operator_work.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

using spmd::ArrayPlace;
using spmd::PipelineSteps;
using spmd::TrainingStep;

std::vector<spmd::Layout> layouts_of(const std::vector<std::optional<spmd::Layout>>& annotated) {
  std::vector<spmd::Layout> layouts;
  for (const auto& one : annotated) layouts.push_back(one.value_or(spmd::Layout{}));
  return layouts;
}

class Costing {
 public:
  Costing(const spmd::OperatorGraph& graph, const spmd::PipelineStages& stages,
          const spmd::TrainingSteps& steps, const Cluster& cluster)
      : graph_(graph),
        stages_(stages),
        steps_(steps),
        sorted_(pipeline_steps(graph, stages, steps)) {
    for (const std::size_t mesh : stages.meshes) {
      prices_.emplace_back(cluster, graph.meshes[mesh].mesh);
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
    const MeshPrices& prices = prices_[stages_.rank_of(stage)];
    double f = 0, i = 0, w = 0, b = 0;
    for (const std::size_t at : sorted_.forward[stage]) {
      const TrainingStep& step = steps_.steps[at];
      if (step.kind == TrainingStep::Kind::Move) {
        f += of_move(at, prices);
      } else {
        const OperatorNanoseconds ns = of_operator(step, prices, {});
        f += ns.forward + ns.own_collectives;
      }
    }
    for (const std::size_t at : sorted_.backward[stage]) {
      const TrainingStep& step = steps_.steps[at];
      if (step.kind == TrainingStep::Kind::Move) {
        const double ns = of_move(at, prices);
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
      b += of_operator(step, prices, all).backward;
      i += of_operator(step, prices, of_inputs).backward;
      w += of_operator(step, prices, of_parameters).backward;
    }
    const auto rounded = [](double ns) { return Nanoseconds(std::llround(ns)); };
    return {.f = rounded(f), .i = rounded(i), .w = rounded(w), .b = rounded(b)};
  }

  OperatorNanoseconds of_operator(const TrainingStep& step, const MeshPrices& prices,
                                  std::vector<bool> gradients) const {
    const spmd::GraphOperator& one = graph_.operators[step.at];
    gradients.resize(one.annotation.inputs.size());
    return work_of(graph_, step.at, layouts_of(one.annotation.inputs),
                   layouts_of(one.annotation.outputs), gradients, prices);
  }

  /// The steps of it that are inside the stage; of one that comes from another those after its
  /// message.
  double of_move(std::size_t at, const MeshPrices& prices) const {
    const TrainingStep& step = steps_.steps[at];
    const spmd::GraphTensor& tensor = graph_.tensors[step.at];
    const std::size_t message = sorted_.message_of_step[at];
    std::size_t begin = 0;
    if (message != PipelineSteps::kNoMessage) begin = sorted_.messages[message].first + 1;
    double ns = 0;
    for (std::size_t place = begin; place < step.plan.steps.size(); ++place) {
      const spmd::ReshardStep& one = step.plan.steps[place];
      if (one.kind == spmd::ReshardStep::Kind::Exchange) continue;
      const spmd::Layout& from = place == 0 ? steps_.arrays[*step.inputs[0]].layout
                                            : step.plan.steps[place - 1].after.layout;
      ns += prices.of(one, tensor.shape, from, element_type(tensor.type)->bytes);
    }
    return ns;
  }

  const spmd::OperatorGraph& graph_;
  const spmd::PipelineStages& stages_;
  const spmd::TrainingSteps& steps_;
  PipelineSteps sorted_;
  std::vector<MeshPrices> prices_;
  std::vector<int> first_ranks_;
  CostTable costs_;
};

}  // namespace

CostTable stage_costs(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                      const spmd::TrainingSteps& steps, const Cluster& cluster) {
  return Costing(completed, stages, steps, cluster).table();
}

}  // namespace pipewright::planner::tensor_placement
