#include "planner/plans/program_of_plan.hpp"

#include <cmath>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "core/plan/tied_stages.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/ratios.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

void require(bool fits, const std::string& what, std::int64_t found, std::int64_t expected) {
  if (fits) return;
  throw InputError("the plan's order has " + std::to_string(found) + " " + what +
                   ", the plan has " + std::to_string(expected) + "; make the two agree");
}

void require_fit(const Order& order, const Plan& plan) {
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  require(order.rank_count() == plan.ranks(), "ranks", order.rank_count(), plan.ranks());
  require(order.stages() == stages, "stages", order.stages(), stages);
  require(order.micro_batches == plan.micro_batches, "micro-batches", order.micro_batches,
          plan.micro_batches);
  if (order.placement.looks_at_micro_batch()) return;
  for (int s = 0; s < order.stages(); ++s) {
    const RankId home = order.placement.rank_of(StageId(s), MicroBatchId(0));
    const RankId planned = plan.stages[static_cast<std::size_t>(s)].rank;
    if (home == planned) continue;
    throw InputError("the plan puts stage " + std::to_string(s) + " on rank " +
                     std::to_string(planned.value) + ", its order computes it on rank " +
                     std::to_string(home.value) + "; make the two agree");
  }
}

void require_actions(const Order& order, const ActionTimes& times) {
  if (const auto fault = fault_of(times.rows(), order, times.shape()))
    throw InputError("the plan's /costs/actions/" + std::to_string(fault->row) + ": " + fault->why +
                     "; its order and its times of actions have to agree");
}

Order order_of_replicas(const Plan& plan, int replicas) {
  Order order = replicate(pipeline_order(plan), replicas);
  if (plan.parts.empty()) return order;
  order.parts = plan.parts;
  order.mesh = axes_of(plan);
  return order;
}

/// Figures of the first replicas, for so many: the next ones do what these do, one after the other.
Figures repeated(const Figures& first, std::size_t ranks) {
  Figures all = first;
  all.ranks.clear();
  for (std::size_t r = 0; r < ranks; ++r) all.ranks.push_back(first.ranks[r % first.ranks.size()]);
  set_ratios(all);
  return all;
}

}  // namespace

Order pipeline_order(const Plan& plan) {
  Order order;
  if (plan.schedule.order) {
    order = *plan.schedule.order;
  } else {
    order = make_order(plan.schedule.name, {plan.ranks(), plan.micro_batches, plan.schedule.chunks,
                                            plan.schedule.parameters, costs_of_whole_actions(plan),
                                            plan.cluster.device.memory});
  }
  require_fit(order, plan);
  if (plan.costs.actions != nullptr) require_actions(order, *plan.costs.actions);
  return order;
}

Order order_of_plan(const Plan& plan) { return order_of_replicas(plan, plan.program_replicas()); }

CostTable costs_of_whole_actions(const Plan& plan) {
  CostTable costs = plan.costs;
  for (const ActionParts& action : plan.parts) {
    Nanoseconds& time =
        costs.stages[static_cast<std::size_t>(action.stage.value)].*time_of(action.kind);
    double calls = 0, computations = 0;
    for (const Part& part : action.parts)
      (part.is_computation() ? computations : calls) += static_cast<double>(part.weight);
    time += Nanoseconds(std::llround(static_cast<double>(time.value) * (calls / computations)));
  }
  return costs;
}

LowerOptions lowering_of_training(const TrainingSpec& training, const Sharding& sharding,
                                  const Model& model, std::span<const StagePlan> stages) {
  return {.clips = training.clip_grad_norm > 0,
          .optimizer = true,
          .sharded = sharding.zero > 0,
          .sharding = sharding,
          .tied = tied_stages(model, stages)};
}

LowerOptions lowering_of_plan(const Plan& plan) {
  return lowering_of_training(plan.training, plan.sharding(), plan.model, plan.stages);
}

Program program_of_plan(const Plan& plan) {
  return lower(order_of_plan(plan), plan.policy, lowering_of_plan(plan));
}

WaitReport fill_prediction(Plan& plan) {
  return fill_prediction(plan, plan.costs, plan.program_replicas());
}

WaitReport fill_prediction(Plan& plan, const CostTable& costs, int replicas) {
  const Program program =
      lower(order_of_replicas(plan, replicas), plan.policy, lowering_of_plan(plan));
  const sim::Result result = sim::simulate(program, costs);
  if (!result.finished) return sim::check(program, costs);
  const Figures figures = repeated(figures_of(program, result.timeline, costs),
                                   static_cast<std::size_t>(plan.all_ranks()));
  Prediction prediction;
  prediction.step = Nanoseconds(figures.makespan_ns);
  prediction.bubble_ratio = figures.bubble_ratio;
  for (const RankFigures& rank : figures.ranks) {
    prediction.peak_activations.push_back(rank.peak_activations);
    prediction.peak_bytes.emplace_back(rank.peak_bytes);
  }
  plan.predicted = std::move(prediction);
  return {};
}

}  // namespace pipewright::planner
