// Measures what this machine costs: F, I, W and the update of every layer, the loss, a transfer
// between two ranks, and the runtime's own part of an action. The result is what the planner reads
// as profile.json. It trains the model for a while (exec/profile/run.hpp), on the clock on which
// the run will be. Starts and joins its own threads; uses the cores for about `budget_ns`.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/model/model.hpp"
#include "core/model/tensor_split.hpp"
#include "core/plan/profile.hpp"
#include "exec/base/numerics.hpp"
#include "exec/data/data.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/profile/run.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec {

struct ProfileOptions {
  std::vector<int> micro_batch_sizes = {1};
  /// Ranks that train together while it is measured, so that shared caches and cores are felt; no
  /// more than the model has layers.
  int ranks = 1;
  /// So many of these ranks' pipelines are replicas of one another: all train whole models, whose
  /// parameters share the caches. The first is what the profile's own sizes are of; those of others
  /// stand beside them (DividedProfile).
  std::vector<int> replicas = {1};
  /// How ranks divide layers in the runs that it is for, besides whole ones; on CPUs alone.
  std::vector<StageDivision> divisions;
  std::int64_t budget_ns =
      5'000'000'000;  // about; F, I and W of a layer are measured at least 12 times
  OptimizerSpec optimizer;
  /// What it trains on; empty: random tokens, or vectors. Which experts rows go to, and so what
  /// their layers take, depends on it.
  DataFiles data;
  Numerics numerics = Numerics::Fast;  // of the runs that it is for
  std::uint64_t seed = 1;
  /// Virtual: CPU time of the computing thread instead of time, for runs on the virtual clock.
  local::ClockKind clock = local::ClockKind::Wall;
  /// Set from outside to give up; may be null.
  const std::atomic<bool>* interrupted = nullptr;
  const ProfileBackend* backend = nullptr;  // null: this machine's CPUs
};

/// Throws InputError if the layers do not fit each other or cannot be divided so, RunError if it
/// was interrupted.
Profile measure_profile(const Model& model, const Cluster& machine, const ProfileOptions& options);

}  // namespace pipewright::exec
