// What each stage of a configuration computes again: the least with which its rank keeps to the
// memory limit. Early ranks of a pipeline hold more micro-batches than late ones, so that only some
// need it.
//
// The order is fixed, as it is for all schedules but the cost-driven ones, which are left out. Then
// what a rank holds at most depends on its own stages alone (planner/memory/order_peaks.hpp), and
// the step is made of sums and maxima of durations as long as transfers wait for nothing but their
// ends and their turn (no links that several routes share): no duration that grows makes it
// shorter. A stage's F, I, W and B take no less with more recompute. A longer backward may hide
// more of the reduction of gradients (only where overlap_grad_reduce asks for that), but at most as
// much as it takes longer, on the same rank and before the update. So:
//
//   With one stage a rank, no choice of recompute that keeps to the limit has a shorter step than
//   the least of each stage (unless ranks wait for each other before an update that overlap
//   shortens).
//
// With several stages a rank the choice is by a rule, and not claimed to be the best. Up to four
// stages with three kinds, all choices for a rank are tried, and of those that fit, the one with
// the least time in the rank's B's is taken. With more, and where ranks share stages: while a rank
// holds too much, one of its stages does more, the one that gives back most of the rank's peak for
// each nanosecond that its B grows. In the end each stage that can do less, in their order, does;
// after that no single stage can do less. Where that finds nothing, one choice for all stages is
// tried, so that what fits with the same for all fits by stage, too.
//
// Pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/branches/known_peaks.hpp"
#include "planner/branches/space.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/memory/order_peaks.hpp"

namespace pipewright::planner {

/// The stages of a cut under each kind of recompute that they may have.
struct StagesByRecompute {
  std::vector<LayerRecompute> kinds;             // the least first
  std::vector<std::vector<StageCosts>> costs;    // by kind, by stage
  std::vector<std::vector<StageMemory>> memory;  // by kind, by stage
  std::vector<RankId> rank_of_stage;

  /// `choice`: by stage an index into `kinds`. What a rank needs once for its recompute is the most
  /// that any of its stages needs.
  std::vector<StageCosts> costs_of(std::span<const std::size_t> choice) const;
  std::vector<StageMemory> memory_of(std::span<const std::size_t> choice) const;
  /// Of one stage, on a rank whose stages have the kinds of these bits.
  StageMemory memory_of(std::size_t stage, std::size_t kind, unsigned of_rank) const;

  /// By stage and part by part, the least of all kinds from least[stage] on.
  std::vector<StageCosts> least_costs(std::span<const std::size_t> least) const;
  std::vector<StageMemory> least_memory() const;
  /// Whether there is any StageMemory::in_f, or its like.
  bool has_more_in_actions() const;
};
StagesByRecompute stages_by_recompute(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                                      std::span<const StagePlan> stages);

/// By stage an index into `kinds`, by the rule above; nullopt: nothing keeps to the limits.
std::optional<std::vector<std::size_t>> least_recompute(const StagesByRecompute& stages,
                                                        const OrderPeaks& peaks,
                                                        const RankLimits& limits);

/// A configuration with its SetupRecompute::of_stage and, where they were chosen now, what they
/// were chosen by.
struct ChosenRecompute {
  Configuration configuration;
  std::optional<Order> order;  // of one replica; empty where its peaks were known
  std::optional<StagesByRecompute> by_kind;
  std::vector<std::size_t> choice;  // of by_kind
};
/// Chooses where each stage has its own and they are not chosen yet; nullopt: nothing keeps to the
/// limit. Needs a schedule that is not cost-driven.
std::optional<ChosenRecompute> with_chosen_recompute(const ConfigurationCosts& costs,
                                                     const Configuration& configuration,
                                                     std::span<const StagePlan> stages, Bytes limit,
                                                     KnownPeaks& known);

/// As the functions of ConfigurationCosts, also for a setup with SetupRecompute::of_stage.
std::vector<StageCosts> chosen_stage_costs(const ConfigurationCosts& costs,
                                           const ParallelSetup& setup,
                                           std::span<const StagePlan> stages);
std::vector<StageMemory> chosen_stage_memory(const ConfigurationCosts& costs,
                                             const ParallelSetup& setup,
                                             std::span<const StagePlan> stages);
CostTable chosen_table(const ConfigurationCosts& costs, const ParallelSetup& setup,
                       std::span<const StagePlan> stages, int replicas);
/// The same of a setup with SetupRecompute::of_stage, from what they were chosen by.
CostTable chosen_table(const ConfigurationCosts& costs, const ParallelSetup& setup,
                       std::span<const StagePlan> stages, int replicas,
                       const StagesByRecompute& by_kind);

/// Whether the job has this very plan under one recompute for all stages: then it is counted there.
bool is_alike_elsewhere(const ConfigurationCosts& costs, const Configuration& chosen,
                        std::span<const StagePlan> stages);

}  // namespace pipewright::planner
