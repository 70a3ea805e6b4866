#include "planner/tensor_placement/placement_json.hpp"

#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/reshard_cases.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

Json names_of(const std::vector<std::size_t>& operators, const spmd::OperatorGraph& graph) {
  Json names = Json::array();
  for (const std::size_t at : operators) names.push_back(graph.operators[at].name);
  return names;
}

Json message_to_json(const spmd::OperatorGraph& graph, std::size_t tensor, const char* between,
                     const std::vector<std::size_t>& operators, const spmd::ReshardPlan& plan,
                     double ns) {
  Json steps = Json::array();
  for (const spmd::ReshardStep& step : plan.steps) steps.push_back(summary_of(step));
  return {{"tensor", graph.tensors[tensor].name},
          {between, names_of(operators, graph)},
          {"ns", ns},
          {"bytes", plan.bytes},
          {"steps", std::move(steps)}};
}

}  // namespace

Json to_json(const GraphPlacement& placement) {
  if (!placement.is_found()) {
    return {{"verdict", "infeasible"},
            {"limit_bytes", placement.limit_bytes},
            {"least_bytes", placement.found.least_bytes}};
  }
  const spmd::OperatorGraph& graph = placement.completion.graph;
  Json operators = Json::array(), forward = Json::array(), backward = Json::array();
  for (std::size_t at = 0; at < placement.operators.size(); ++at) {
    const PlacedOperator& one = placement.operators[at];
    operators.push_back({{"name", graph.operators[at].name},
                         {"forward_ns", one.ns.forward},
                         {"backward_ns", one.ns.backward},
                         {"own_collectives_ns", one.ns.own_collectives},
                         {"communication_ns", one.communication_ns},
                         {"communication_bytes", one.communication_bytes},
                         {"kept_bytes", one.bytes}});
  }
  for (std::size_t at = 0; at < placement.completion.reshards.size(); ++at) {
    const spmd::GraphReshard& one = placement.completion.reshards[at];
    forward.push_back(message_to_json(graph, one.tensor, one.is_made ? "made_by" : "taken_by",
                                      one.operators, one.plan, placement.reshard_ns[at]));
  }
  for (const GradientReshard& one : placement.gradients) {
    backward.push_back(message_to_json(graph, one.tensor,
                                       one.is_made ? "gradient_to" : "gradient_from", one.operators,
                                       one.plan, one.ns));
  }
  return {{"verdict", placement.gap() == 0 ? "optimal" : "feasible"},
          {"ns", placement.found.totals.ns},
          {"bound_ns", placement.found.bound_ns},
          {"gap", placement.gap()},
          {"bytes", placement.found.totals.bytes},
          {"limit_bytes", placement.limit_bytes},
          {"operators", std::move(operators)},
          {"forward", std::move(forward)},
          {"backward", std::move(backward)}};
}

Json to_json(const std::vector<OtherHome>& homes, const GraphPlacement& placement) {
  Json list = Json::array();
  for (const OtherHome& home : homes) {
    Json fields = spmd::layout_to_json(home.layout);
    fields["least_ns"] = home.least_ns;
    list.push_back(std::move(fields));
  }
  return {{"homes", std::move(list)}, {"ns", placement.found.totals.ns}};
}

}  // namespace pipewright::planner::tensor_placement
