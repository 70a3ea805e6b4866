#include "planner/plans/run_of_plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/collectives.hpp"
#include "core/costs/part_weights.hpp"
#include "core/model/expert_fold.hpp"
#include "core/order/devices.hpp"
#include "core/order/forward_order.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"

namespace pipewright::planner {
namespace {

std::vector<ActionParts> parts_of_layers(const Plan& plan, exec::Numerics numerics,
                                         exec::RunMode mode = exec::RunMode::Train) {
  std::vector<ActionParts> all = exec::divided_parts(
      plan.model, plan.stages, plan.micro_batch_size,
      recompute_of(plan.model, plan.training.recompute), plan.division(), numerics, mode);
  for (ActionParts& action : all) {
    for (Part& part : action.parts) part.weight = std::max<std::int64_t>(1, part.weight);
  }
  return all;
}

bool are_alike(const ActionParts& a, const ActionParts& b) {
  return a.stage == b.stage && a.kind == b.kind &&
         std::ranges::equal(a.parts, b.parts, [](const Part& one, const Part& other) {
           return one.is_computation()
                      ? other.is_computation()
                      : difference(one.call, other.call).empty() && one.beside == other.beside;
         });
}

/// Ranks of the plan's Program that divide its experts, or sequences: what they exchange is in the
/// costs of its stages.
bool has_exchanges(const Plan& plan) {
  return plan.division().experts > 1 || (plan.replicas_are_ranks && plan.mesh.size("cp") > 1);
}
bool is_exchange(const Call& call) { return call.group != kTensorAxis; }

/// What a call takes in which such ranks take part.
Nanoseconds time_of_exchange(const Plan& plan, const Call& call) {
  CostTable table;
  table.every_route = plan.costs.route_of_edge.empty()
                          ? plan.costs.every_route
                          : way_between(plan.cluster, 0, plan.cluster.devices() - 1);
  set_collectives(table, plan.cluster, {0});
  return table.collective_time({.kind = call.kind,
                                .stage = {},
                                .members = {{RankId(0), kNoInstruction}},
                                .call_bytes = bytes_of(call),
                                .devices = exec::members_of(plan.division(), call)},
                               1);
}

/// What a plan says of its own calls, beside computations that take so long.
class PlannedCalls {
 public:
  PlannedCalls(const Plan& plan, const ActionParts& action, Nanoseconds computations) {
    const auto own = std::ranges::find_if(plan.parts, [&](const ActionParts& one) {
      return one.stage == action.stage && one.kind == action.kind;
    });
    if (own == plan.parts.end()) return;
    parts_ = own->parts;
    double weights = 0;
    for (const Part& part : parts_)
      weights += part.is_computation() ? static_cast<double>(part.weight) : 0;
    ns_of_weight_ = static_cast<double>(computations.value) / weights;
  }

  /// 0 for one that the plan does not have.
  Nanoseconds time_of(const Call& call) const {
    for (const Part& part : parts_) {
      if (!part.is_computation() && difference(part.call, call).empty()) return time_of(part);
    }
    return {};
  }
  bool has(const Call& call) const {
    return std::ranges::any_of(parts_, [&](const Part& part) {
      return !part.is_computation() && difference(part.call, call).empty();
    });
  }
  Nanoseconds all() const {
    Nanoseconds sum;
    for (const Part& part : parts_) sum += part.is_computation() ? Nanoseconds() : time_of(part);
    return sum;
  }

 private:
  Nanoseconds time_of(const Part& part) const {
    return Nanoseconds(std::llround(ns_of_weight_ * static_cast<double>(part.weight)));
  }

  std::vector<Part> parts_;
  double ns_of_weight_ = 0;
};

Nanoseconds& time_of(const ActionParts& action, std::vector<StageCosts>& stages) {
  return stages[static_cast<std::size_t>(action.stage.value)].*pipewright::time_of(action.kind);
}

/// The exchanges of a plan that has them inside the costs of its stages are taken out of `stages`,
/// and an action with its parts takes what it took.
void weigh_exchanges(const Plan& plan, std::vector<ActionParts>& parts,
                     std::vector<StageCosts>& stages) {
  for (ActionParts& action : parts) {
    Nanoseconds& time = time_of(action, stages);
    const PlannedCalls planned(plan, action, time);
    time = weigh(action, time + planned.all(), [&](const Call& call) {
      return is_exchange(call) ? time_of_exchange(plan, call) : planned.time_of(call);
    });
  }
}

/// The same in exact numerics, whose computations take what those of fast ones do, and whose calls
/// are others: in W sums of a micro-batch's gradients along cp, and what ranks along tp gather for
/// them; where keys go round, their gradients' sums in turns.
void weigh_exact_exchanges(const Plan& plan, std::vector<ActionParts>& parts) {
  std::vector<StageCosts> planned_stages = plan.costs.stages, computations = planned_stages;
  std::vector<ActionParts> fast = parts_of_layers(plan, exec::Numerics::Fast);
  weigh_exchanges(plan, fast, computations);
  for (ActionParts& action : parts) {
    const PlannedCalls planned(plan, action, time_of(action, planned_stages));
    const auto price = [&](const Call& call) {
      return is_exchange(call) || !planned.has(call) ? time_of_exchange(plan, call)
                                                     : planned.time_of(call);
    };
    Nanoseconds all = time_of(action, computations);
    for (const Part& part : action.parts)
      if (!part.is_computation()) all += price(part.call);
    static_cast<void>(weigh(action, all, price));
  }
}

/// Of the layers, weighed as the plan says where it has the same.
std::vector<ActionParts> parts_of_run(const Plan& plan, exec::Numerics numerics) {
  std::vector<ActionParts> parts = parts_of_layers(plan, numerics);
  if (has_exchanges(plan) && numerics == exec::Numerics::Exact) {
    weigh_exact_exchanges(plan, parts);
  } else if (has_exchanges(plan)) {
    std::vector<StageCosts> stages = plan.costs.stages;
    weigh_exchanges(plan, parts, stages);
  }
  for (ActionParts& action : parts) {
    const auto planned = std::ranges::find_if(
        plan.parts, [&](const ActionParts& one) { return are_alike(one, action); });
    if (planned != plan.parts.end()) action = *planned;
  }
  return parts;
}

/// Of a training's parts those of a run that is forward only, each with the weight that it has
/// there.
void keep_forwards(const Plan& plan, exec::Numerics numerics, exec::RunMode mode,
                   std::vector<ActionParts>& parts) {
  std::vector<ActionParts> forwards = parts_of_layers(plan, numerics, mode);
  for (ActionParts& action : forwards) {
    const ActionParts& trained =
        *parts_of(parts, Action{.kind = ActionKind::F, .stage = action.stage});
    for (std::size_t i = 0; i < action.parts.size(); ++i)  // a loss comes behind them
      action.parts[i].weight = trained.parts[i].weight;
  }
  parts = std::move(forwards);
}

/// By rank of a run, of those along tp the first, the plan's: ranks that divide the experts, or
/// sequences, stand side by side in a run.
std::vector<std::size_t> ranks_in_plan(const Plan& plan) {
  const int parts = plan.division().experts * plan.division().context, ranks = plan.ranks();
  std::vector<std::size_t> places;
  for (int whole = 0; whole < whole_replicas(plan); ++whole) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int part = 0; part < parts; ++part)
        places.push_back(static_cast<std::size_t>((whole * parts + part) * ranks + rank));
    }
  }
  return places;
}

/// Replicas that the plan's Program does not have take the ways of the first one.
void take_routes(const Plan& plan, const std::vector<std::size_t>& places, CostTable& costs) {
  const auto known = static_cast<std::size_t>(plan.all_ranks());
  const bool is_alike = known == places.size() && !has_exchanges(plan);
  if (costs.route_of_edge.empty() || is_alike) return;
  const auto rank = [known](std::size_t place) {
    return RankId(static_cast<std::int64_t>(place % known));
  };
  costs.route_of_edge.clear();
  costs.ranks_of_replica = 0;
  costs.route_of_edge.reserve(places.size() * places.size());
  for (const std::size_t from : places) {
    for (const std::size_t to : places)
      costs.route_of_edge.push_back(plan.costs.route(rank(from), rank(to), plan.all_ranks()));
  }
}

std::vector<int> devices_of_run(const Plan& plan, const std::vector<std::size_t>& places) {
  const std::vector<int> all = plan.mesh.devices_that_divide_ranks();
  const auto tensor = static_cast<std::size_t>(plan.division().tensor);
  std::vector<int> devices;
  for (const std::size_t place : places) {
    for (std::size_t t = 0; t < tensor; ++t) devices.push_back(all[place * tensor + t]);
  }
  return devices;
}

}  // namespace

bool divides_layers(const Plan& plan) { return plan.division() != StageDivision{}; }

int whole_replicas(const Plan& plan) {
  const StageDivision ranks = plan.division();
  if (plan.expert_tensor_parallel == 1 && ranks.tensor > 1) {
    const std::string fault = fold_fault(ranks, plan.replicas(), plan.expert_parallel);
    if (!fault.empty()) throw InputError("the plan cannot be run: " + fault);
  }
  if (plan.replicas() % ranks.experts == 0) return plan.replicas() / ranks.experts;
  throw InputError("the plan's expert_parallel, " + std::to_string(plan.expert_parallel) +
                   ", does not divide its replicas, dp " + std::to_string(plan.replicas()) +
                   "; make it one of its divisors");
}

Order order_of_run(const Plan& plan, exec::Numerics numerics, exec::RunMode mode) {
  const bool trains = mode == exec::RunMode::Train;
  if (!divides_layers(plan))
    return trains ? order_of_plan(plan) : forward_order(order_of_plan(plan));
  const Order pipeline = pipeline_order(plan);
  Order order = replicate(trains ? pipeline : forward_order(pipeline), whole_replicas(plan));
  order.parts = parts_of_run(plan, numerics);
  if (!trains) keep_forwards(plan, numerics, mode, order.parts);
  // Of each rank of the pipeline, and of each replica that is not one of them.
  order.mesh = exec::axes_of(plan.division());
  return written_out(order);
}

Program program_of_run(const Plan& plan, exec::Numerics numerics, exec::RunMode mode) {
  LowerOptions options;
  if (mode == exec::RunMode::Train) options = lowering_of_plan(plan);
  return lower(order_of_run(plan, numerics, mode), plan.policy, options);
}

CostTable costs_of_run(const Plan& plan) {
  CostTable costs = plan.costs;
  if (!divides_layers(plan)) return costs;
  costs.actions = nullptr;  // of a pipeline's ranks; here each device has micro-batches of its own
  if (has_exchanges(plan)) {
    std::vector<ActionParts> parts = parts_of_layers(plan, exec::Numerics::Fast);
    weigh_exchanges(plan, parts, costs.stages);
  }
  const std::vector<std::size_t> places = ranks_in_plan(plan);
  const std::vector<int> devices = devices_of_run(plan, places);
  if (!costs.links.empty()) {  // shared, each by the devices that it belongs to
    set_routes(costs, plan.cluster, devices);
    return costs;
  }
  take_routes(plan, places, costs);
  costs.ranks_of_entry = plan.division().tensor;
  if (costs.collectives != nullptr) set_collectives(costs, plan.cluster, devices);
  return costs;
}

}  // namespace pipewright::planner
