#include "planner/synthesis/plan_synthesis.hpp"

#include <algorithm>

#include "core/program.hpp"
#include "planner/program_of_plan.hpp"
#include "planner/synthesis/auto_schedule.hpp"

namespace pipewright::planner {
namespace {

/// Synthesis knows one latency for all messages: that of the slowest.
CostTable with_one_latency(const Plan& plan) {
  CostTable costs = plan.costs;
  Nanoseconds slowest;
  for (const Route& route : program_of_plan(plan).routes) {
    slowest = std::max(slowest, plan.costs.transfer_time(route, plan.all_ranks()));
  }
  costs.every_route = {slowest, 0, {}};
  costs.route_of_edge.clear();
  costs.links.clear();
  return costs;
}

std::string than(Nanoseconds found, const Plan& plan) {
  return format_duration(found) + " a step, " + format_duration(plan.predicted.step) + " with " +
         plan.schedule.name;
}

}  // namespace

PlanSynthesis synthesise_for_plan(const Plan& plan, std::vector<Bytes> memory_limit,
                                  const SynthesisRequest& settings) {
  PlanSynthesis found;
  const Placement placement = pipeline_order(plan).placement;
  if (placement.looks_at_micro_batch()) {
    found.why = plan.schedule.name + " has replicas of its stages; synthesis does not look there";
    return found;
  }
  SynthesisRequest request = settings;
  request.placement = placement;
  request.micro_batches = plan.micro_batches;
  request.costs = with_one_latency(plan);
  request.memory_limit = std::move(memory_limit);
  found.result = synthesise(request);
  if (!found.result.order) {
    found.why = least_limit_text(found.result);
    return found;
  }
  Plan changed = plan;
  changed.schedule.name = "auto";
  changed.schedule.parameters.clear();
  changed.schedule.order = found.result.order;
  if (fill_prediction(changed).verdict != Verdict::Ok) {
    found.why = "the order that was found does not end under the plan's policy; the plan keeps " +
                plan.schedule.name;
    return found;
  }
  if (changed.predicted.step >= plan.predicted.step) {
    found.why = "no better order was found: " + than(changed.predicted.step, plan);
    return found;
  }
  found.why = "a better order was found: " + than(changed.predicted.step, plan);
  changed.tuner.reasons.push_back("Synthesised: " + found.why + ".");
  found.plan = std::move(changed);
  return found;
}

}  // namespace pipewright::planner
