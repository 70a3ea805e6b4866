#include "planner/branches/evaluation.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/plan/rank_axes.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/branches/pair_times.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

Candidate candidate_of(const Configuration& configuration, const std::vector<StagePlan>& stages,
                       const Program& program, const CostTable& costs, const Figures& figures) {
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
  for (const StageId stage : program.placement.stages_of(fullest))
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
                      p.chunks, p.micro_batches, p.tensor, p.pipeline, p.context, p.experts,
                      p.expert_tensor_degree, p.zero, p.recompute, p.sequence_parallel, p.order,
                      p.stage_replicas, o.candidate.partition == "even",
                      o.candidate.partition == "by-rank");
  };
  return key(a) < key(b);
}

Evaluation evaluate(const Job& job, const ConfigurationCosts& source, const Branch& branch,
                    Bytes limit) {
  Evaluation outcome;
  auto chosen = with_chosen_recompute(source, branch.configuration, *branch.stages, limit);
  if (!chosen || (branch.configuration.parallel.recompute.is_to_choose() &&
                  is_alike_elsewhere(source, chosen->configuration, *branch.stages))) {
    outcome.pruned = chosen ? LeftOut::AlikeRecompute : LeftOut::OverMemory;
    return outcome;
  }
  const Configuration& c = chosen->configuration;
  const ParallelSetup& parallel = c.parallel;
  const OrderCosts by =
      chosen->by_kind
          ? OrderCosts{chosen_table(source, parallel, *branch.stages,
                                    source.simulated_replicas(parallel), *chosen->by_kind),
                       limits_of(source, parallel, limit)}
          : order_costs(source, c, *branch.stages, limit);
  const ScheduleRequest request = request_for(parallel, *branch.stages, by.table, by.limits);
  // The sizes are possible; a schedule that plans by costs may still find no room for its order.
  if (c.schedule->traits.cost_driven && refusal_of(*c.schedule, request)) {
    outcome.pruned = LeftOut::OverMemory;
    return outcome;
  }
  const Order order = chosen->order ? *std::move(chosen->order) : c.schedule->make(request);
  return evaluate_order(job, source, c, *branch.stages, order, by);
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
  Evaluation outcome;
  const ParallelSetup& parallel = configuration.parallel;
  const int replicas = costs.simulated_replicas(parallel);
  const Order order = replicate(pipeline, replicas);
  const CommPolicy policy = policy_for(job, *configuration.schedule);
  const Program program =
      lower(order, policy,
            lowering_of_training(job.training, sharding_of(job, parallel), job.model, stages));
  // The peak follows from the order alone, and simulating costs more.
  for (const RankFigures& rank : peaks_of(program, by.table)) {
    const int of_replica = static_cast<int>(outcome.rank_peaks.size()) % parallel.pipeline;
    const Bytes peak(rank.peak_bytes);
    outcome.rank_peaks.push_back(peak);
    if (by.limits.all.value > 0 && peak > by.limits.of(of_replica))
      outcome.pruned = LeftOut::OverMemory;
  }
  if (outcome.pruned) return outcome;
  std::optional<CostTable> with_pairs;
  if (configuration.schedule->traits.overlaps) {
    with_pairs =
        with_pair_times(by.table, pipeline, costs.stage_parts(parallel, stages, by.table.stages),
                        rank_axes(parallel.division(), parallel.data), policy);
  }
  const CostTable& table = with_pairs ? *with_pairs : by.table;
  const sim::Result result = sim::simulate(program, table);
  outcome.simulated = true;
  if (!result.finished) {
    outcome.pruned = LeftOut::Stuck;
    return outcome;
  }
  outcome.candidate = candidate_of(configuration, stages, program, table,
                                   figures_of(program, result.timeline, table));
  if (!costs.is_estimated()) repeat_for_all(outcome.candidate, replicas);
  outcome.schedule_index = static_cast<std::size_t>(configuration.schedule - schedules().data());
  return outcome;
}

}  // namespace pipewright::planner
