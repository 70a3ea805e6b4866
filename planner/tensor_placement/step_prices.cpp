#include "planner/tensor_placement/step_prices.hpp"

#include <algorithm>

#include "core/order/element_type.hpp"
#include "planner/tensor_placement/operator_work.hpp"

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

double StepPrices::forward(const TrainingStep& step) const {
  const OperatorNanoseconds ns = work(graph_, step.at, {}, prices_);
  return ns.forward + ns.own_collectives;
}

double StepPrices::backward(const TrainingStep& step, std::vector<bool> gradients) const {
  return work(graph_, step.at, std::move(gradients), prices_).backward;
}

double StepPrices::move(const TrainingStep& step, std::size_t begin) const {
  const spmd::GraphTensor& tensor = graph_.tensors[step.at];
  const std::int64_t element_bytes = element_type(tensor.type)->bytes;
  const auto& plan = step.plan.steps;
  double ns = 0;
  std::size_t mesh = array(step.inputs[0]).mesh;
  for (std::size_t place = 0; place < plan.size(); ++place) {
    const spmd::ReshardStep& one = plan[place];
    const bool is_exchange = one.kind == spmd::ReshardStep::Kind::Exchange;
    if (place >= begin) {
      const spmd::Layout& from =
          place == 0 ? array(step.inputs[0]).layout : plan[place - 1].after.layout;
      ns += is_exchange ? exchange(one, element_bytes)
                        : prices_[mesh].of(one, tensor.shape, from, element_bytes);
    }
    const bool is_there = one.after.mesh == graph_.meshes[array(step.outputs[0]).mesh].mesh;
    if (is_there) mesh = array(step.outputs[0]).mesh;
  }
  return ns;
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
      ns += forward(step);
    } else if (step.kind == TrainingStep::Kind::Backward) {
      std::vector<bool> wanted;
      for (const spmd::ArrayPlace& place : step.gradients) wanted.push_back(place.has_value());
      ns += backward(step, std::move(wanted));
    } else if (step.kind == TrainingStep::Kind::Move) {
      ns += move(step);
    }
  }
  return ns;
}

}  // namespace pipewright::planner::tensor_placement
