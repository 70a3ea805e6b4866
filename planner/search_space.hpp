// The configurations that the tuner looks at: what the job leaves open, and what it fixes. Pure
// functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/job.hpp"
#include "planner/cost_model.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

struct Configuration {
  const Schedule* schedule = nullptr;
  int ranks = 1, chunks = 1;
  int replicas = 1;  // data parallel; `ranks` and `micro_batches` are of one
  int micro_batches = 1, micro_batch_size = 1;
  /// How the layers are cut: by cost (the default), or into equal numbers of layers.
  bool even_layers = false;
  /// False for a configuration that is only there to be compared with: the job fixes a field
  /// otherwise.
  bool allowed = true;
  Placement placement;  // placement_of(); a stage with replicas goes by its first micro-batch

  int stages() const { return placement.stages(); }
};

struct SearchSpace {
  std::vector<Configuration> baselines;  // naive, on one rank and on more
  std::vector<Configuration> others;
  std::map<std::string, int> pruned;  // left out before anything was simulated, by reason
};

/// Values that the job gives for a field limit it to these, in both auto modes: a value the user
/// wrote is never ignored. Fields without values are searched:
///   pp_degree         1 to the cluster's devices (beyond 16: powers of two, divisors, and
///                     whole nodes); on a machine that the ranks share, at most its cores
///   dp_degree         1 (more only where the job names it)
///   accumulate_steps  the divisors of the global batch (micro_batch_size is what is left)
///   vpp_degree        1, or 2, 4, 8 … for schedules with chunks
///   schedule_mode     every synchronous registry entry with loop placement and without a policy of
///                     its own; the others where they are named
/// Throws InputError for a value that is not a positive number or a schedule that does not exist.
SearchSpace search_space(const Job& job, const CostModel& costs);

}  // namespace pipewright::planner
