#include "planner/tensor_placement/step_prices.hpp"

#include <algorithm>
#include <map>

#include "core/order/element_type.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

using spmd::TrainingStep;

std::vector<spmd::Layout> layouts_of(const std::vector<std::optional<spmd::Layout>>& annotated) {
  std::vector<spmd::Layout> layouts;
  for (const auto& one : annotated) layouts.push_back(one.value_or(spmd::Layout{}));
  return layouts;
}

OperatorNanoseconds work(const spmd::OperatorGraph& graph, std::size_t at,
                         std::vector<bool> gradients, const std::vector<MeshPrices>& prices) {
  const spmd::OperatorAnnotation& annotation = graph.operators[at].annotation;
  gradients.resize(annotation.inputs.size());
  return work_of(graph, at, layouts_of(annotation.inputs), layouts_of(annotation.outputs),
                 gradients, prices[*annotation.mesh]);
}

}  // namespace

StepPrices::StepPrices(const spmd::OperatorGraph& completed, const spmd::TrainingSteps& steps,
                       const Cluster& cluster)
    : graph_(completed), steps_(steps), cluster_(cluster) {
  for (const spmd::NamedMesh& one : completed.meshes) prices_.emplace_back(cluster, one.mesh);
}

OperatorNanoseconds StepPrices::forward(const TrainingStep& step) const {
  return work(graph_, step.at, {}, prices_);
}

double StepPrices::backward(const TrainingStep& step, std::vector<bool> gradients) const {
  return work(graph_, step.at, std::move(gradients), prices_).backward;
}

double StepPrices::move(const TrainingStep& step, std::size_t place) const {
  const spmd::GraphTensor& tensor = graph_.tensors[step.at];
  const std::int64_t element_bytes = element_type(tensor.type)->bytes;
  const spmd::ReshardStep& one = step.plan.steps[place];
  if (one.kind == spmd::ReshardStep::Kind::Exchange) return exchange(one, element_bytes);
  const spmd::TrainingArray &begin = array(step.inputs[0]), &end = array(step.outputs[0]);
  const spmd::Distribution before =
      place == 0 ? spmd::Distribution{graph_.meshes[begin.mesh].mesh, begin.layout}
                 : step.plan.steps[place - 1].after;
  const bool is_there = before.mesh == graph_.meshes[end.mesh].mesh;
  return prices_[is_there ? end.mesh : begin.mesh].of(one, tensor.shape, before.layout,
                                                      element_bytes);
}

double StepPrices::exchange(const spmd::ReshardStep& step, std::int64_t element_bytes) const {
  std::map<int, double> sent, received;
  for (const spmd::PartTransfer& one : step.transfers) {
    const RouteCosts way = way_between(cluster_, one.from, one.to);
    double ns = static_cast<double>(way.latency.value);
    if (way.bytes_per_second > 0) {
      ns += 1e9 * static_cast<double>(element_bytes * spmd::elements_of(one.part)) /
            way.bytes_per_second;
    }
    sent[one.from] += ns;
    received[one.to] += ns;
  }
  double most = 0;
  for (const auto* ends : {&sent, &received}) {
    for (const auto& [rank, ns] : *ends) most = std::max(most, ns);
  }
  return most;
}

double StepPrices::whole() const {
  double ns = 0;
  for (const TrainingStep& step : steps_.steps) {
    if (step.kind == TrainingStep::Kind::Forward) {
      const OperatorNanoseconds of_operator = forward(step);
      ns += of_operator.forward + of_operator.own_collectives;
    } else if (step.kind == TrainingStep::Kind::Backward) {
      std::vector<bool> wanted;
      for (const spmd::ArrayPlace& place : step.gradients) wanted.push_back(place.has_value());
      ns += backward(step, std::move(wanted));
    } else if (step.kind == TrainingStep::Kind::Move) {
      for (std::size_t place = 0; place < step.plan.steps.size(); ++place) ns += move(step, place);
    }
  }
  return ns;
}

}  // namespace pipewright::planner::tensor_placement
