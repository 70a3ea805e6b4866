#include "planner/synthesis/plan_synthesis.hpp"

#include <algorithm>
#include <memory>

#include "planner/plans/program_of_plan.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "planner/synthesis/judging.hpp"
#include "planner/synthesis/own_times.hpp"

namespace pipewright::planner {
namespace {

/// The costs of the plan's first replica: the others have the same order.
CostTable of_pipeline(const Plan& plan) {
  CostTable costs = costs_of_whole_actions(plan);
  if (costs.route_of_edge.empty()) return costs;
  costs.route_of_edge.clear();
  costs.ranks_of_replica = 0;
  for (int from = 0; from < plan.ranks(); ++from) {
    for (int to = 0; to < plan.ranks(); ++to)
      costs.route_of_edge.push_back(plan.costs.route(RankId(from), RankId(to), plan.all_ranks()));
  }
  return costs;
}

/// The plan with the fastest of the orders under its policy; nothing where none ends.
std::optional<Plan> fastest(const Plan& plan, const std::vector<Order>& orders) {
  std::optional<Plan> best;
  for (const Order& order : orders) {
    Plan changed = plan;
    changed.schedule.name = "auto";
    changed.schedule.parameters.clear();
    changed.schedule.order = order;
    if (const auto& own = plan.costs.actions)
      changed.costs.actions =
          std::make_shared<ActionTimes>(rows_of(own->rows(), order), own->shape());
    if (fill_prediction(changed).verdict != Verdict::Ok) continue;
    if (!best || changed.predicted.step < best->predicted.step) best = std::move(changed);
  }
  return best;
}

std::string than(Nanoseconds found, const Plan& plan) {
  return format_duration(found) + " a step, " + format_duration(plan.predicted.step) + " with " +
         plan.schedule.name;
}

}  // namespace

PlanSynthesis synthesise_for_plan(const Plan& plan, const std::vector<Bytes>& memory_limit,
                                  const SynthesisRequest& settings) {
  PlanSynthesis found;
  const Order own = pipeline_order(plan);
  if (own.placement.looks_at_micro_batch()) {
    found.why = plan.schedule.name + " has replicas of its stages; synthesis does not look there";
    return found;
  }
  SynthesisRequest request = settings;
  request.placement = own.placement;
  request.micro_batches = plan.micro_batches;
  request.costs = of_pipeline(plan);
  request.memory_limit =
      limits_between_actions(memory_limit, plan.stages, plan.ranks(), request.costs);
  if (const auto& times = request.costs.actions) search_what_is_named(times->rows(), request);
  request.with_updates = true;
  request.starts.emplace_back(plan.schedule.name, own);
  request.runners_up = kRunnersUp;
  found.result = synthesise(request);
  if (!found.result.order) {
    found.why = least_limit_text(found.result);
    return found;
  }
  std::optional<Plan> best = fastest(plan, orders_to_judge(request, found.result));
  if (!best) {
    found.why = "no order that was found ends under the plan's policy; the plan keeps " +
                plan.schedule.name;
    return found;
  }
  Plan& changed = *best;
  if (changed.predicted.step >= plan.predicted.step) {
    found.why = "no better order was found: " + than(changed.predicted.step, plan);
    return found;
  }
  found.why = "a better order was found: " + than(changed.predicted.step, plan);
  changed.tuner.reasons.push_back("Synthesised: " + found.why + ".");
  found.plan = std::move(best);
  return found;
}

}  // namespace pipewright::planner
