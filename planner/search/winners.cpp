#include "planner/search/winners.hpp"

#include <algorithm>
#include <tuple>

#include "planner/branches/recompute_by_stage.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/synthesis/judging.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kWinners = 3;
/// Actions placed and timed for a winner: as many as this number of its orders has, but no more
/// than kMostSteps.
constexpr std::int64_t kOrders = 2000;
constexpr std::int64_t kMostSteps = 3'000'000;
constexpr std::int64_t kMostWinnerActions = 200'000;  // of an order; a larger one is left as it is

/// What a synthesised order keeps of a row.
bool same_stages(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    const ParallelSetup& p = c.parallel;
    return std::tie(p.tensor, p.data, p.pipeline, p.experts, p.expert_tensor_degree, p.context,
                    p.ring, p.micro_batch_size, p.micro_batches, p.recompute, p.sequence_parallel,
                    p.zero, p.shards, p.order);
  };
  const auto same = [](const StagePlan& s, const StagePlan& t) {
    return s.first_layer == t.first_layer && s.end_layer == t.end_layer && s.rank == t.rank;
  };
  return key(a) == key(b) &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), same);
}

std::int64_t actions_of(const Candidate& row) {
  return 3 * static_cast<std::int64_t>(row.stages.size()) * row.parallel.micro_batches;
}

/// Rows with a choice of order, one for each choice of stages.
std::vector<const Evaluation*> rows_with_orders(const std::vector<Evaluation>& ranked) {
  std::vector<const Evaluation*> rows;
  for (std::size_t i = 0; i < std::min(ranked.size(), kRowsForWinners); ++i) {
    const Candidate& row = ranked[i].candidate;
    const Layout layout = find_schedule(row.schedule).layout;
    const bool has_choice = row.parallel.pipeline > 1 &&
                            (layout == Layout::Loop || layout == Layout::V) &&
                            actions_of(row) <= kMostWinnerActions;
    const bool is_new = std::none_of(rows.begin(), rows.end(), [&](const Evaluation* other) {
      return same_stages(other->candidate, row);
    });
    if (has_choice && is_new) rows.push_back(&ranked[i]);
  }
  return rows;
}

struct Outcome {
  std::optional<Evaluation> better;
  std::int64_t orders = 0;
};

/// A row, what is asked of synthesis for it, and what its orders are judged by.
struct Winner {
  const Evaluation* row = nullptr;
  Configuration configuration;
  OrderCosts judged_by;
  SynthesisRequest wanted;
  std::int64_t bound = 0;  // no order is faster
};

SynthesisRequest request_of(const WinnersRequest& request, const Winner& winner) {
  const Candidate& row = winner.row->candidate;
  const ParallelSetup& parallel = row.parallel;
  const auto& [table, limits] = winner.judged_by;
  SynthesisRequest wanted;
  wanted.micro_batches = parallel.micro_batches;
  wanted.costs = request.costs.simulated_replicas(parallel) == 1
                     ? table
                     : chosen_table(request.costs, parallel, row.stages, 1);
  wanted.costs.actions = table.actions;  // of all replicas that are simulated
  std::vector<Bytes> allowed;
  for (int r = 0; r < parallel.pipeline && limits.all.value > 0; ++r)
    allowed.push_back(limits.of(r));
  wanted.memory_limit =
      limits_between_actions(allowed, row.stages, parallel.pipeline, wanted.costs);
  const Order own =
      winner.configuration.schedule->make(request_for(parallel, row.stages, table, limits));
  wanted.placement = own.placement;
  wanted.starts.emplace_back(row.schedule, own);
  wanted.with_updates = true;
  wanted.runners_up = kRunnersUp;
  wanted.steps = std::min(kOrders * actions_of(row), kMostSteps);
  if (request.most_ns > 0) {
    const auto share = request.most_ns / static_cast<std::int64_t>(kWinners) / kNanosecondsAStep;
    wanted.steps = std::clamp<std::int64_t>(share, 1, wanted.steps);
  }
  return wanted;
}

Winner winner_of(const WinnersRequest& request, const Evaluation& evaluation) {
  const Candidate& row = evaluation.candidate;
  const Configuration configuration{&find_schedule(row.schedule), row.parallel,
                                    row.partition == "even", row.partition == "by-rank"};
  Winner winner{&evaluation,
                configuration,
                order_costs(request.costs, configuration, row.stages, request.limit),
                {},
                0};
  winner.wanted = request_of(request, winner);
  winner.bound = synthesis_bound(winner.wanted);
  winner.configuration.schedule = &find_schedule("auto");
  return winner;
}

/// The first rows for which a bound leaves room for an order faster than every row.
std::vector<Winner> winners_of(const WinnersRequest& request,
                               const std::vector<Evaluation>& ranked) {
  const std::vector<const Evaluation*> rows = rows_with_orders(ranked);
  std::vector<Winner> winners(rows.size());
  for_each_index(
      rows.size(), request.threads,
      [&](std::size_t i) { winners[i] = winner_of(request, *rows[i]); }, request.meanwhile);
  std::erase_if(winners, [&](const Winner& winner) {
    return winner.bound >= ranked.front().candidate.step.value;
  });
  if (winners.size() > kWinners) winners.resize(kWinners);
  return winners;
}

Outcome synthesise_winner(const WinnersRequest& request, const Winner& winner) {
  Outcome outcome;
  const Candidate& row = winner.row->candidate;
  const SynthesisRequest& wanted = winner.wanted;
  const SynthesisResult found = synthesise(wanted);
  outcome.orders = found.evaluated;
  for (const Order& order : orders_to_judge(wanted, found)) {
    Evaluation judged = evaluate_order(request.job, request.costs, winner.configuration, row.stages,
                                       order, winner.judged_by);
    if (judged.pruned || judged.candidate.step >= row.step) continue;
    if (outcome.better && !better(judged, *outcome.better)) continue;
    judged.candidate.synthesised = {std::make_shared<const Order>(order), row.schedule, row.step};
    outcome.better = std::move(judged);
  }
  return outcome;
}

}  // namespace

bool synthesises_winners(const Job& job) { return job.strategy.schedule_mode.empty(); }

WinnersSynthesis synthesise_winners(const WinnersRequest& request,
                                    std::vector<Evaluation>& ranked) {
  const std::vector<Winner> winners = winners_of(request, ranked);
  std::vector<Outcome> outcomes(winners.size());
  for_each_index(
      winners.size(), request.threads,
      [&](std::size_t i) { outcomes[i] = synthesise_winner(request, winners[i]); },
      request.meanwhile);
  WinnersSynthesis done;
  done.winners = static_cast<int>(winners.size());
  std::vector<Evaluation> rows;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    done.orders += outcomes[i].orders;
    if (!outcomes[i].better) continue;
    ++done.better;
    const double before = static_cast<double>(winners[i].row->candidate.step.value);
    const double after = static_cast<double>(outcomes[i].better->candidate.step.value);
    done.gain = std::max(done.gain, 1 - after / before);
    rows.push_back(std::move(*outcomes[i].better));
  }
  std::move(rows.begin(), rows.end(), std::back_inserter(ranked));
  return done;
}

}  // namespace pipewright::planner
