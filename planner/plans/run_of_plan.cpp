#include "planner/plans/run_of_plan.hpp"

#include <algorithm>
#include <utility>

#include "core/cluster/cluster.hpp"
#include "core/cluster/collectives.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"
#include "exec/layers/divided_parts.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"

namespace pipewright::planner {
namespace {

int tensor_ranks(const Plan& plan) { return plan.mesh.size("tp"); }

std::vector<ActionParts> parts_of_layers(const Plan& plan) {
  const auto recompute = recompute_of(plan.model, plan.training.recompute);
  std::vector<ActionParts> all;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (ActionParts& action :
         exec::divided_parts(plan.model, plan.stages[s].first_layer, plan.stages[s].end_layer,
                             plan.micro_batch_size, recompute, tensor_ranks(plan))) {
      action.stage = StageId(static_cast<std::int64_t>(s));
      for (Part& part : action.parts) part.weight = std::max<std::int64_t>(1, part.weight);
      all.push_back(std::move(action));
    }
  }
  return all;
}

bool are_alike(const ActionParts& a, const ActionParts& b) {
  return a.stage == b.stage && a.kind == b.kind &&
         std::ranges::equal(a.parts, b.parts, [](const Part& one, const Part& other) {
           return one.is_computation() ? other.is_computation()
                                       : difference(one.call, other.call).empty();
         });
}

/// Of the layers, weighed as the plan says where it has the same.
std::vector<ActionParts> parts_of_run(const Plan& plan) {
  std::vector<ActionParts> parts = parts_of_layers(plan);
  for (ActionParts& action : parts) {
    const auto planned = std::ranges::find_if(
        plan.parts, [&](const ActionParts& one) { return are_alike(one, action); });
    if (planned != plan.parts.end()) action = *planned;
  }
  return parts;
}

/// Replicas that the plan's Program does not have take the ways of the first one.
void repeat_routes(const Plan& plan, CostTable& costs) {
  const auto known = static_cast<std::size_t>(plan.all_ranks());
  const auto ranks = static_cast<std::size_t>(plan.ranks() * plan.replicas());
  if (costs.route_of_edge.empty() || known == ranks) return;
  costs.route_of_edge.clear();
  costs.route_of_edge.reserve(ranks * ranks);
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to)
      costs.route_of_edge.push_back(
          plan.costs.route_of_edge[from % known * known + to % known]);
  }
}

}  // namespace

bool divides_layers(const Plan& plan) { return tensor_ranks(plan) > 1; }

Order order_of_run(const Plan& plan) {
  if (!divides_layers(plan)) return order_of_plan(plan);
  Order order = replicate(pipeline_order(plan), plan.replicas());
  order.parts = parts_of_run(plan);
  order.mesh = {{std::string(kTensorAxis), tensor_ranks(plan)}};
  return written_out(order);
}

Program program_of_run(const Plan& plan) {
  return lower(order_of_run(plan), plan.policy, lowering_of_plan(plan));
}

CostTable costs_of_run(const Plan& plan) {
  CostTable costs = plan.costs;
  if (!divides_layers(plan)) return costs;
  const std::vector<int> devices = plan.mesh.devices_that_divide_ranks();
  if (!costs.links.empty()) {  // shared, each by the devices that it belongs to
    set_routes(costs, plan.cluster, devices);
    return costs;
  }
  repeat_routes(plan, costs);
  costs.ranks_of_entry = tensor_ranks(plan);
  if (costs.collectives != nullptr) set_collectives(costs, plan.cluster, devices);
  return costs;
}

}  // namespace pipewright::planner
