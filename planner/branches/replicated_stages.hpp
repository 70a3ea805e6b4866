// Cuts and bounds where stages have replicas that take turns (PipeDream, SOSP 2019, section 3.1):
// each of a stage's R ranks does 1/R of the micro-batches, and after each of them the ranks reduce
// the stage's gradients and update.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/configurations/costs.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {

/// The stages that a mesh may have, judged by what a rank of each has to do in a step: F, I and W
/// of its micro-batches, their reductions and updates; and no less than the messages at either end
/// of the stage, up and down, which move meanwhile (both as the paper counts them). Layers are
/// priced one by one, so what a stage has once (the launch of an action) is not included, except
/// for the latency of its ring. Ask from one thread; only the constructor reads `costs`.
class ReplicatedStages {
 public:
  ReplicatedStages(const ConfigurationCosts& costs, const ParallelSetup& mesh);

  /// The cut whose busiest rank has least to do, exactly; of these the most even one. nullopt:
  /// fewer layers than stages.
  std::optional<Partition> cut(const std::vector<int>& stage_replicas);

  /// For this number of stages: how many ranks each has, a divisor of the micro-batches, so that
  /// the busiest rank has least to do in the best cut of all. Exact, by a table over layers, ranks
  /// and stages (the paper's program; it has one level of network here, but each ring's own
  /// routes). Of equals the one that was found first: fewer ranks for early stages. Needs a number
  /// of stages of replications_of().
  std::vector<int> best_replicas(int stages);
  /// What the busiest rank has to do then, in nanoseconds of a step.
  std::int64_t least_largest(int stages);

  /// Fills `reduce` of stages with replicas with what their collective takes.
  void set_rings(const std::vector<int>& stage_replicas, std::span<const StagePlan> stages,
                 std::vector<StageCosts>& stage_costs);

 private:
  /// What a rank of a stage on these ranks has to do: `fixed` + sums[end] - sums[first], and no
  /// less than at_cut[first] and at_cut[end].
  struct Load {
    std::int64_t fixed = 0;
    std::vector<std::int64_t> sums, at_cut;
  };
  /// The best from layer l and rank r on in k stages: its busiest rank's work, and the first
  /// stage's ranks and end.
  struct Best {
    std::int64_t largest = INT64_MAX;
    int replicas = 0, end = 0;
  };

  const Load& load_on(int first_rank, int replicas);
  /// Of a micro-batch, up and down between two ranks, at the cut after a layer.
  Nanoseconds messages(int from, int to, int layer) const;
  Nanoseconds ring(int first_rank, int replicas, Bytes parameters);
  void fill_table();
  Best best_of(int stages, int layer, int rank);
  Best& cell(int stages, int layer, int rank);

  int ranks_, micro_batches_, layers_;
  CostTable routes_;                // has no stages; the parameters of the ring that is asked for
  std::vector<std::int64_t> work_;  // of a layer for a micro-batch, with its update
  std::vector<Bytes> parameters_;   // of a layer
  std::map<std::pair<int, int>, Load> loads_;
  std::vector<Best> table_;
};

/// ReplicatedStages::set_rings() where the setup's stages have replicas; else nothing.
void set_ring_times(const ConfigurationCosts& costs, const ParallelSetup& setup,
                    std::span<const StagePlan> stages, std::vector<StageCosts>& stage_costs);

/// A step that no order beats, by what each stage's ranks have to do. The last of a stage's R ranks
/// waits for micro-batch R - 1: for the way through the stages before it; one of these with fewer
/// replicas has to do more micro-batches before that one. Then m / R times F and B, with reduction
/// and update after each B. After the last B comes the longer of two: that reduction and update, or
/// the way down through the B of the stages before, and the reduction and update of the first.
std::int64_t replicated_bound(const ParallelSetup& setup, const std::vector<StageCosts>& costs);

/// By rank; false only if the state of its stage and the activations that 1f1b-rr has in flight
/// there are over the limit.
std::vector<bool> replicated_ranks_that_fit(const ParallelSetup& setup,
                                            const std::vector<StageMemory>& memory,
                                            const RankLimits& limits);

}  // namespace pipewright::planner
