#include "planner/branches/evaluation.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/plan/rank_axes.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/branches/pair_times.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/long_step.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/order_period.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

Candidate candidate_of(const Configuration& configuration, const std::vector<StagePlan>& stages,
                       const Placement& placement, const CostTable& costs, const Figures& figures) {
  Candidate candidate = unpriced(configuration);
  candidate.stages = stages;
  candidate.step = Nanoseconds(figures.makespan_ns);
  candidate.bubble_ratio = figures.bubble_ratio;
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    const RankFigures& rank = figures.ranks[r];
    candidate.peak_activations.push_back(rank.peak_activations);
    if (r > 0 && Bytes(rank.peak_bytes) <= candidate.peak_bytes) continue;
    candidate.peak_bytes = Bytes(rank.peak_bytes);
    candidate.fullest_rank = static_cast<int>(r);
  }
  const RankId fullest(candidate.fullest_rank);
  for (const StageId stage : placement.stages_of(fullest))
    candidate.state_bytes += costs.memory_or_unit(static_cast<int>(stage.value)).constant;
  return candidate;
}

/// What was found of some replicas, for all of them.
void repeat_for_all(Candidate& candidate, int replicas) {
  const auto ranks = candidate.peak_activations.size() / static_cast<std::size_t>(replicas);
  for (int d = replicas; d < candidate.parallel.program_replicas(); ++d) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const int peak = candidate.peak_activations[r];
      candidate.peak_activations.push_back(peak);
    }
  }
}

std::size_t place_in_registry(const Schedule& schedule) {
  return static_cast<std::size_t>(&schedule - schedules().data());
}

/// Notes the peaks of the ranks, and whether one is over its limit.
void look_at_peaks(const std::vector<RankFigures>& ranks, const RankLimits& limits, int pipeline,
                   Evaluation& outcome) {
  for (const RankFigures& rank : ranks) {
    const int of_replica = static_cast<int>(outcome.rank_peaks.size()) % pipeline;
    const Bytes peak(rank.peak_bytes);
    outcome.rank_peaks.push_back(peak);
    if (limits.all.value > 0 && peak > limits.of(of_replica)) outcome.pruned = LeftOut::OverMemory;
  }
}

/// The table with what the order's pairs take; nullopt: the schedule has none that overlap.
std::optional<CostTable> with_pairs_of(const ConfigurationCosts& costs,
                                       const Configuration& configuration,
                                       const std::vector<StagePlan>& stages, const Order& pipeline,
                                       const CostTable& table, const CommPolicy& policy) {
  if (!configuration.schedule->traits.overlaps) return std::nullopt;
  const ParallelSetup& parallel = configuration.parallel;
  return with_pair_times(table, pipeline, costs.stage_parts(parallel, stages, table.stages),
                         rank_axes(parallel.division(), parallel.data), policy);
}

/// Whether a short step is to be looked at for a steady state that shows the whole one.
bool may_be_steady(const ConfigurationCosts& source, const Configuration& c,
                   const ScheduleRequest& request) {
  // Replicas have collectives, with which no steady state is looked for.
  if (source.simulated_replicas(c.parallel) > 1) return false;
  const int period = order_period(*c.schedule, request);
  return period > 0 && 2 * first_tried(request, period) <= request.micro_batches;
}

/// What the whole step takes, from its steady state: the same integers. nullopt: none is found.
std::optional<Evaluation> evaluate_steady(const Job& job, const Configuration& c,
                                          const std::vector<StagePlan>& stages,
                                          const ScheduleRequest& request, const CostTable& table,
                                          const RankLimits& limits) {
  const ParallelSetup& parallel = c.parallel;
  const LongStepAnswer answer =
      long_step(*c.schedule, request, table, policy_for(job, *c.schedule),
                lowering_of_training(job.training, sharding_of(job, parallel), job.model, stages));
  if (!answer.step) return std::nullopt;
  const Figures& figures = answer.step->figures;
  Evaluation outcome;
  look_at_peaks(figures.ranks, limits, parallel.pipeline, outcome);
  if (outcome.pruned) return outcome;
  outcome.simulated = true;
  outcome.candidate = candidate_of(c, stages, placement_of(*c.schedule, request), table, figures);
  outcome.schedule_index = place_in_registry(*c.schedule);
  return outcome;
}

/// evaluate_order(), with by.table as it is timed, if that is known.
Evaluation evaluate_whole(const Job& job, const ConfigurationCosts& costs,
                          const Configuration& configuration, const std::vector<StagePlan>& stages,
                          const Order& pipeline, const OrderCosts& by,
                          std::optional<CostTable> with_pairs) {
  Evaluation outcome;
  const ParallelSetup& parallel = configuration.parallel;
  const int replicas = costs.simulated_replicas(parallel);
  std::optional<Order> replicated;
  if (replicas > 1) replicated = replicate(pipeline, replicas);
  const CommPolicy policy = policy_for(job, *configuration.schedule);
  const Program program =
      lower(replicated ? *replicated : pipeline, policy,
            lowering_of_training(job.training, sharding_of(job, parallel), job.model, stages));
  // The peak follows from the order alone, and simulating costs more.
  std::vector<RankFigures> peaks = peaks_of(program, by.table);
  look_at_peaks(peaks, by.limits, parallel.pipeline, outcome);
  if (outcome.pruned) return outcome;
  if (!with_pairs)
    with_pairs = with_pairs_of(costs, configuration, stages, pipeline, by.table, policy);
  const CostTable& table = with_pairs ? *with_pairs : by.table;
  const sim::Result result = sim::simulate(program, table);
  outcome.simulated = true;
  if (!result.finished) {
    outcome.pruned = LeftOut::Stuck;
    return outcome;
  }
  outcome.candidate = candidate_of(configuration, stages, program.placement, table,
                                   figures_of(program, result.timeline, std::move(peaks)));
  if (!costs.is_estimated()) repeat_for_all(outcome.candidate, replicas);
  outcome.schedule_index = place_in_registry(*configuration.schedule);
  return outcome;
}

}  // namespace

Candidate unpriced(const Configuration& configuration) {
  Candidate candidate;
  candidate.schedule = configuration.schedule->name;
  candidate.parallel = configuration.parallel;
  candidate.partition = configuration.even_layers   ? "even"
                        : configuration.rank_evened ? "by-rank"
                                                    : "balanced";
  return candidate;
}

bool better(const Evaluation& a, const Evaluation& b) {
  const auto key = [](const Evaluation& o) {
    const ParallelSetup& p = o.candidate.parallel;
    return std::tuple(o.candidate.step, o.candidate.peak_bytes, p.devices(), o.schedule_index,
                      p.chunks, p.micro_batches, p.tensor, p.pipeline, p.context, p.ring, p.experts,
                      p.expert_tensor_degree, p.zero, p.shards, p.recompute, p.sequence_parallel,
                      p.order, p.stage_replicas, o.candidate.partition == "even",
                      o.candidate.partition == "by-rank");
  };
  return key(a) < key(b);
}

namespace {

/// bound_of() the chosen recompute.
std::int64_t bound_of_chosen(const ConfigurationCosts& costs, const ChosenRecompute& chosen,
                             const std::vector<StagePlan>& stages, Bytes limit) {
  const Configuration& c = chosen.configuration;
  return bound_of(c, stages, costs, chosen.by_kind->costs_of(chosen.choice),
                  room_of(c, stages, chosen.by_kind->memory_of(chosen.choice),
                          limits_of(costs, c.parallel, limit)));
}

}  // namespace

ChosenBranch choose(const ConfigurationCosts& costs, const Branch& branch, Bytes limit,
                    KnownPeaks& known, const ToBeat& beat) {
  const Configuration& asked = branch.configuration;
  ChosenBranch chosen;
  auto with = with_chosen_recompute(costs, asked, *branch.stages, limit, known);
  if (!with) {
    chosen.left_out = LeftOut::OverMemory;
    return chosen;
  }
  if (asked.parallel.recompute.is_to_choose() &&
      is_alike_elsewhere(costs, with->configuration, *branch.stages)) {
    chosen.left_out = LeftOut::AlikeRecompute;
    return chosen;
  }
  if (with->by_kind && beat.step < INT64_MAX &&
      bound_of_chosen(costs, *with, *branch.stages, limit) > beat.step) {
    chosen.left_out = beat.why;
    return chosen;
  }
  chosen.configuration = std::move(with->configuration);
  chosen.stages = branch.stages;
  chosen.order = std::move(with->order);
  const ParallelSetup& parallel = chosen.configuration.parallel;
  const int replicas = costs.simulated_replicas(parallel);
  chosen.by = {with->by_kind
                   ? chosen_table(costs, parallel, *branch.stages, replicas, *with->by_kind)
                   : chosen_table(costs, parallel, *branch.stages, replicas),
               limits_of(costs, parallel, limit)};
  return chosen;
}

Evaluation evaluate(const Job& job, const ConfigurationCosts& costs, const Branch& branch,
                    Bytes limit) {
  KnownPeaks none;
  return evaluate(job, costs, branch, limit, none);
}

Evaluation evaluate(const Job& job, const ConfigurationCosts& costs, const Branch& branch,
                    Bytes limit, KnownPeaks& known) {
  return evaluate(job, costs, choose(costs, branch, limit, known));
}

Evaluation evaluate(const Job& job, const ConfigurationCosts& source, ChosenBranch chosen) {
  Evaluation outcome;
  if (chosen.left_out) {
    outcome.pruned = chosen.left_out;
    return outcome;
  }
  const Configuration& c = chosen.configuration;
  const std::vector<StagePlan>& stages = *chosen.stages;
  const OrderCosts& by = chosen.by;
  const ScheduleRequest request = request_for(c.parallel, stages, by.table, by.limits);
  // The sizes are possible; a schedule that plans by costs may still find no room for its order.
  if (c.schedule->traits.cost_driven && refusal_of(*c.schedule, request)) {
    outcome.pruned = LeftOut::OverMemory;
    return outcome;
  }
  std::optional<Order> order = std::move(chosen.order);
  std::optional<CostTable> with_pairs;
  if (by.table.actions == nullptr && may_be_steady(source, c, request)) {
    if (c.schedule->traits.overlaps) {
      if (!order) order = c.schedule->make(request);
      with_pairs = with_pairs_of(source, c, stages, *order, by.table, policy_for(job, *c.schedule));
    }
    const CostTable& table = with_pairs ? *with_pairs : by.table;
    if (auto steady = evaluate_steady(job, c, stages, request, table, by.limits))
      return *std::move(steady);
  }
  if (!order) order = c.schedule->make(request);
  return evaluate_whole(job, source, c, stages, *order, by, std::move(with_pairs));
}

OrderCosts order_costs(const ConfigurationCosts& costs, const Configuration& configuration,
                       const std::vector<StagePlan>& stages, Bytes limit) {
  const ParallelSetup& parallel = configuration.parallel;
  return {chosen_table(costs, parallel, stages, costs.simulated_replicas(parallel)),
          limits_of(costs, parallel, limit)};
}

Evaluation evaluate_order(const Job& job, const ConfigurationCosts& costs,
                          const Configuration& configuration, const std::vector<StagePlan>& stages,
                          const Order& pipeline, const OrderCosts& by) {
  return evaluate_whole(job, costs, configuration, stages, pipeline, by, std::nullopt);
}

}  // namespace pipewright::planner
