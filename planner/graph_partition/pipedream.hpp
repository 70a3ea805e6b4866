// PipeDream's optimizer: stages with replicas on machines whose network has levels (Narayanan et
// al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.1; the
// terms for the synchronisation of replicas are those of its published program, which counts the
// bytes of a step four times). Pure functions; seconds and bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace pipewright::planner {

/// States in a topological order: for a chain its layers, for a graph the antichains of its layers.
struct PipeDreamProfile {
  std::vector<double> compute_until;     // forward and backward of a state and all before it
  std::vector<double> parameters_until;  // bytes, of a state and all before it
  std::vector<double> output_bytes;      // that leave the state
  /// After which states a stage that ends in a state may begin: one row a state, a flag for each
  /// state. Empty: after every lower one.
  std::vector<std::vector<bool>> predecessors;
};

/// May a stage end in `before` where the next one ends in `state`?
bool precedes(const PipeDreamProfile& profile, std::size_t before, std::size_t state);

struct NetworkLevel {
  int machines = 1;  // of the level below, or single ones at the lowest
  double bytes_per_second = 0;
};

struct ReplicatedStage {
  int first = 0, end = 0;  // states [first, end)
  int replicas = 1;        // groups of the level below
  bool operator==(const ReplicatedStage&) const = default;
};

struct PipeDreamPlan {
  double slowest_stage_s = 0;
  std::vector<ReplicatedStage> stages;  // of the outermost level
};

/// The least time of the slowest stage when all machines of all levels are used, the innermost
/// level first. Infinite where that is impossible. `straight`: no stage has replicas. Where plans
/// tie, the one found first. Profile vectors have one length, at least 1; a level at least one
/// machine.
PipeDreamPlan pipedream_partition(const PipeDreamProfile& profile,
                                  const std::vector<NetworkLevel>& levels, bool straight);

}  // namespace pipewright::planner
