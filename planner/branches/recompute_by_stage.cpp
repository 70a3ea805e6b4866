#include "planner/branches/recompute_by_stage.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "planner/branches/branch.hpp"
#include "planner/configurations/stage_replicas.hpp"

namespace pipewright::planner {
namespace {

ParallelSetup alike(const ParallelSetup& setup, LayerRecompute recompute) {
  ParallelSetup same = setup;
  same.recompute = {recompute};
  return same;
}

std::vector<std::size_t> choice_of(const StagesByRecompute& stages,
                                   const SetupRecompute& recompute) {
  std::vector<std::size_t> choice;
  for (const LayerRecompute kind : recompute.of_stage) {
    const auto place = std::find(stages.kinds.begin(), stages.kinds.end(), kind);
    PIPEWRIGHT_ASSERT(place != stages.kinds.end(), "a stage's recompute is none of the mesh's");
    choice.push_back(static_cast<std::size_t>(place - stages.kinds.begin()));
  }
  return choice;
}

/// All choices for one rank's stages are tried up to this many: four stages with three kinds.
constexpr double kMostChoices = 81;

/// One search for a choice.
class LeastRecompute {
 public:
  LeastRecompute(const StagesByRecompute& stages, const OrderPeaks& peaks, const RankLimits& limits)
      : stages_(stages),
        peaks_(peaks),
        limits_(limits),
        choice_(stages.rank_of_stage.size(), 0),
        memory_(choice_.size()) {
    ranks_of_stage_.resize(choice_.size());
    for (std::size_t s = 0; s < choice_.size(); ++s) {
      stages_at_.resize(std::max(stages_at_.size(), home_of(s) + 1));
      stages_at_[home_of(s)].push_back(s);
    }
    for (int r = 0; r < peaks.ranks(); ++r) {
      for (const int stage : peaks.stages_of(r))
        ranks_of_stage_[static_cast<std::size_t>(stage)].push_back(r);
    }
  }

  std::optional<std::vector<std::size_t>> run() {
    if (limits_.all.value <= 0) return choice_;
    if (!raise_until_all_fit() && !set_alike()) return std::nullopt;
    for (std::size_t stage = 0; stage < choice_.size(); ++stage) lower(stage);
    return choice_;
  }

 private:
  std::size_t home_of(std::size_t stage) const {
    return static_cast<std::size_t>(stages_.rank_of_stage[stage].value);
  }

  Bytes peak_of(int rank) {
    for (const int s : peaks_.stages_of(rank)) {
      const auto stage = static_cast<std::size_t>(s);
      unsigned kinds = 0;
      for (const std::size_t other : stages_at_[home_of(stage)]) kinds |= 1U << choice_[other];
      memory_[stage] = stages_.memory_of(stage, choice_[stage], kinds);
    }
    return peaks_.peak(rank, memory_);
  }

  bool fits(int rank) { return peak_of(rank) <= limits_.of(rank); }

  bool raise_until_all_fit() {
    for (int rank = 0; rank < peaks_.ranks(); ++rank) {
      if (fits(rank)) continue;
      if (!(is_small(rank) ? set_best_of_all(rank) : raise_until_fits(rank))) return false;
    }
    // Only where replicas of a stage share it can a later rank have changed an earlier one.
    return all_fit();
  }

  /// Whether all choices for the rank's stages can be tried. Not where another rank shares them.
  bool is_small(int rank) const {
    double choices = 1;
    for (const int stage : peaks_.stages_of(rank)) {
      if (ranks_of_stage_[static_cast<std::size_t>(stage)].size() > 1) return false;
      choices *= static_cast<double>(stages_.kinds.size());
    }
    return choices <= kMostChoices;
  }

  std::int64_t backward_of(int rank) const {
    std::int64_t sum = 0;
    for (const int s : peaks_.stages_of(rank)) {
      const auto stage = static_cast<std::size_t>(s);
      sum += stages_.costs[choice_[stage]][stage].b.value;
    }
    return sum;
  }

  /// The next choice for the rank's stages, its last stage first; false after the last one.
  bool count_up(int rank) {
    const std::vector<int>& own = peaks_.stages_of(rank);
    for (auto stage = own.rbegin(); stage != own.rend(); ++stage) {
      std::size_t& kind = choice_[static_cast<std::size_t>(*stage)];
      if (++kind < stages_.kinds.size()) return true;
      kind = 0;
    }
    return false;
  }

  bool set_best_of_all(int rank) {
    std::optional<std::vector<std::size_t>> best;
    std::int64_t least = 0;
    do {
      const std::int64_t backward = backward_of(rank);
      if (best && backward >= least) continue;
      if (!fits(rank)) continue;
      best = choice_;
      least = backward;
    } while (count_up(rank));
    if (best) choice_ = *std::move(best);
    return best.has_value();
  }

  bool raise_until_fits(int rank) {
    while (!fits(rank)) {
      if (!raise(rank)) return false;
    }
    return true;
  }

  bool all_fit() {
    for (int rank = 0; rank < peaks_.ranks(); ++rank) {
      if (!fits(rank)) return false;
    }
    return true;
  }

  /// False where all stages of the rank do the most already.
  bool raise(int rank) {
    const double before = static_cast<double>(peak_of(rank).value);
    std::size_t best = choice_.size();
    double most = 0;
    for (const int s : peaks_.stages_of(rank)) {
      const auto stage = static_cast<std::size_t>(s);
      const std::size_t kind = choice_[stage];
      if (kind + 1 == stages_.kinds.size()) continue;
      ++choice_[stage];
      const double saved = before - static_cast<double>(peak_of(rank).value);
      --choice_[stage];
      const auto longer = (stages_.costs[kind + 1][stage].b - stages_.costs[kind][stage].b).value;
      const double rate = saved / static_cast<double>(std::max<std::int64_t>(1, longer));
      if (best != choice_.size() && rate <= most) continue;
      best = stage;
      most = rate;
    }
    if (best == choice_.size()) return false;
    ++choice_[best];
    return true;
  }

  bool set_alike() {
    for (std::size_t kind = 0; kind < stages_.kinds.size(); ++kind) {
      std::fill(choice_.begin(), choice_.end(), kind);
      if (all_fit()) return true;
    }
    return false;
  }

  void lower(std::size_t stage) {
    const std::size_t most = choice_[stage];
    for (choice_[stage] = 0; choice_[stage] < most; ++choice_[stage]) {
      const auto& ranks = ranks_of_stage_[stage];
      if (std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return fits(rank); })) return;
    }
  }

  const StagesByRecompute& stages_;
  const OrderPeaks& peaks_;
  const RankLimits& limits_;
  std::vector<std::size_t> choice_;
  std::vector<StageMemory> memory_;  // of the stages that peak_of() last asked for
  std::vector<std::vector<int>> ranks_of_stage_;
  std::vector<std::vector<std::size_t>> stages_at_;  // by rank, those that are its own
};

}  // namespace

std::vector<StageCosts> StagesByRecompute::costs_of(std::span<const std::size_t> choice) const {
  std::vector<StageCosts> chosen;
  for (std::size_t s = 0; s < choice.size(); ++s) chosen.push_back(costs[choice[s]][s]);
  return chosen;
}

std::vector<StageMemory> StagesByRecompute::memory_of(std::span<const std::size_t> choice) const {
  const auto ranks = std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  std::vector<unsigned> of_ranks(static_cast<std::size_t>(ranks->value) + 1, 0);
  for (std::size_t s = 0; s < choice.size(); ++s)
    of_ranks[static_cast<std::size_t>(rank_of_stage[s].value)] |= 1U << choice[s];
  std::vector<StageMemory> chosen;
  for (std::size_t s = 0; s < choice.size(); ++s)
    chosen.push_back(
        memory_of(s, choice[s], of_ranks[static_cast<std::size_t>(rank_of_stage[s].value)]));
  return chosen;
}

StageMemory StagesByRecompute::memory_of(std::size_t stage, std::size_t kind,
                                         unsigned of_rank) const {
  StageMemory chosen = memory[kind][stage];
  // State is the same under each kind; what differs is what a rank needs once.
  for (std::size_t other = 0; other < kinds.size(); ++other) {
    if ((of_rank >> other & 1U) != 0)
      chosen.constant = std::max(chosen.constant, memory[other][stage].constant);
  }
  return chosen;
}

std::vector<StageCosts> StagesByRecompute::least_costs(std::span<const std::size_t> least) const {
  std::vector<StageCosts> part;
  for (std::size_t s = 0; s < least.size(); ++s) {
    StageCosts each = costs[least[s]][s];
    for (std::size_t kind = least[s] + 1; kind < kinds.size(); ++kind) {
      const StageCosts& other = costs[kind][s];
      each.f = std::min(each.f, other.f);
      each.i = std::min(each.i, other.i);
      each.w = std::min(each.w, other.w);
      each.b = std::min(each.b, other.b);
      each.opt = std::min(each.opt, other.opt);
    }
    part.push_back(each);
  }
  return part;
}

std::vector<StageMemory> StagesByRecompute::least_memory() const {
  std::vector<StageMemory> part = memory.front();
  for (std::size_t s = 0; s < part.size(); ++s) {
    for (const auto& of_kind : memory) {
      part[s].constant = std::min(part[s].constant, of_kind[s].constant);
      part[s].f = std::min(part[s].f, of_kind[s].f);
      part[s].w = std::max(part[s].w, of_kind[s].w);  // what it lets go of
    }
  }
  return part;
}

bool StagesByRecompute::has_more_in_actions() const {
  return std::any_of(memory.begin(), memory.end(), [](const std::vector<StageMemory>& stages) {
    return std::any_of(stages.begin(), stages.end(), [](const StageMemory& stage) {
      return stage.in_f.value + stage.in_i.value + stage.in_w.value + stage.in_b.value > 0;
    });
  });
}

StagesByRecompute stages_by_recompute(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                                      std::span<const StagePlan> stages) {
  StagesByRecompute all;
  all.kinds = costs.recompute_kinds();
  for (const LayerRecompute kind : all.kinds) {
    const ParallelSetup setup = alike(mesh, kind);
    all.costs.push_back(costs.stage_costs(setup, stages));
    all.memory.push_back(costs.stage_memory(setup, stages));
  }
  for (const StagePlan& stage : stages) all.rank_of_stage.push_back(stage.rank);
  return all;
}

std::optional<std::vector<std::size_t>> least_recompute(const StagesByRecompute& stages,
                                                        const OrderPeaks& peaks,
                                                        const RankLimits& limits) {
  return LeastRecompute(stages, peaks, limits).run();
}

std::optional<ChosenRecompute> with_chosen_recompute(const ConfigurationCosts& costs,
                                                     const Configuration& configuration,
                                                     std::span<const StagePlan> stages, Bytes limit,
                                                     KnownPeaks& known) {
  const ParallelSetup& setup = configuration.parallel;
  if (!setup.recompute.is_to_choose())
    return ChosenRecompute{configuration, std::nullopt, std::nullopt, {}};
  ScheduleRequest request = request_of(setup);
  request.memory_limit = limit;
  StagesByRecompute by_kind = stages_by_recompute(costs, setup, stages);
  const auto sizes =
      by_kind.has_more_in_actions() ? OrderPeaks::Sizes::InActions : OrderPeaks::Sizes::Changes;
  std::optional<Order> order;
  const auto peaks = known.of(*configuration.schedule, request, sizes, order);
  const auto choice = least_recompute(by_kind, *peaks, limits_of(costs, setup, limit));
  if (!choice) return std::nullopt;
  Configuration chosen = configuration;
  for (const std::size_t kind : *choice)
    chosen.parallel.recompute.of_stage.push_back(by_kind.kinds[kind]);
  return ChosenRecompute{std::move(chosen), std::move(order), std::move(by_kind), *choice};
}

std::vector<StageCosts> chosen_stage_costs(const ConfigurationCosts& costs,
                                           const ParallelSetup& setup,
                                           std::span<const StagePlan> stages) {
  if (setup.recompute.of_stage.empty()) return costs.stage_costs(setup, stages);
  const StagesByRecompute by_kind = stages_by_recompute(costs, setup, stages);
  return by_kind.costs_of(choice_of(by_kind, setup.recompute));
}

std::vector<StageMemory> chosen_stage_memory(const ConfigurationCosts& costs,
                                             const ParallelSetup& setup,
                                             std::span<const StagePlan> stages) {
  if (setup.recompute.of_stage.empty()) return costs.stage_memory(setup, stages);
  const StagesByRecompute by_kind = stages_by_recompute(costs, setup, stages);
  return by_kind.memory_of(choice_of(by_kind, setup.recompute));
}

namespace {

CostTable with_action_times(const ConfigurationCosts& costs, const ParallelSetup& setup,
                            std::span<const StagePlan> stages, int replicas, CostTable table) {
  if (!costs.has_action_times(setup)) return table;
  AlikeStages alike_stages{chosen_stage_costs(costs.alike(), setup, stages), {}};
  alike_stages.computations = costs.alike().stage_computations(setup, stages, alike_stages.whole);
  costs.add_action_times(setup, stages, replicas, alike_stages, table);
  return table;
}

}  // namespace

CostTable chosen_table(const ConfigurationCosts& costs, const ParallelSetup& setup,
                       std::span<const StagePlan> stages, int replicas) {
  if (setup.recompute.of_stage.empty())
    return with_action_times(costs, setup, stages, replicas, costs.table(setup, stages, replicas));
  return chosen_table(costs, setup, stages, replicas, stages_by_recompute(costs, setup, stages));
}

CostTable chosen_table(const ConfigurationCosts& costs, const ParallelSetup& setup,
                       std::span<const StagePlan> stages, int replicas,
                       const StagesByRecompute& by_kind) {
  const auto choice = choice_of(by_kind, setup.recompute);
  // Messages, parameters and routes are the same whatever is computed again.
  CostTable table = costs.table(alike(setup, by_kind.kinds.front()), stages, replicas);
  std::vector<StageCosts> chosen = by_kind.costs_of(choice);
  for (std::size_t s = 0; s < chosen.size(); ++s) {  // the exchange's price, not its bound
    chosen[s].reduce = table.stages[s].reduce;
    chosen[s].unshard = table.stages[s].unshard;
  }
  table.stages = std::move(chosen);
  table.memory = by_kind.memory_of(choice);
  return with_action_times(costs, setup, stages, replicas, std::move(table));
}

bool is_alike_elsewhere(const ConfigurationCosts& costs, const Configuration& chosen,
                        std::span<const StagePlan> stages) {
  const auto& kinds = chosen.parallel.recompute.of_stage;
  const LayerRecompute kind = kinds.front();
  if (std::any_of(kinds.begin(), kinds.end(), [&](LayerRecompute k) { return k != kind; }) ||
      !costs.has_recompute(kind))
    return false;
  if (chosen.even_layers) return true;
  // Under one recompute for all stages the cut by cost may be another one.
  Configuration there = chosen;
  there.parallel = alike(chosen.parallel, kind);
  const std::vector<StagePlan> others = stages_of(there, costs);
  return std::equal(stages.begin(), stages.end(), others.begin(), others.end(),
                    [](const StagePlan& a, const StagePlan& b) {
                      return a.first_layer == b.first_layer && a.end_layer == b.end_layer;
                    });
}

}  // namespace pipewright::planner
