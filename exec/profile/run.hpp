// Measures by training: a model cut into given stages runs 1F1B on several ranks with the same
// engine, device and clock as any other run, and every computation's time is kept. So a layer is
// measured with the caches, allocations, messages and neighbours that it has in a run.
// Starts and joins its own threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/tensor_split.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/stage.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/profile/transfer.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec {

/// Medians of the loss and of its gradient, alone; the last stage's F and I hold them.
struct LossTimes {
  std::int64_t f = 0, i = 0;  // ns
};

/// By instruction, how long it took in each step but the first, in ns.
using ComputationTimes = std::vector<std::vector<std::int64_t>>;

/// Other devices than this machine's CPUs. All four are there, or none.
struct ProfileBackend {
  /// Trains as run() does, and notes the time of each computation; different ranks' instructions
  /// may be noted at once.
  std::function<RunResult(const Program&, const cpu::Training&, const RunOptions&,
                          ComputationTimes&)>
      train;
  std::function<LossTimes(const Model&, int micro_batch_size)> loss;
  std::function<TransferTimes()> transfers;
  std::function<Nanoseconds()> action_overhead;
};

struct ProfileCase {
  const Model* model = nullptr;
  std::vector<int> stage_begin;  // by stage: its first layer
  std::vector<int> first_stage;  // by rank: the first of its stages, which lie next to each other
  StageDivision division;        // of the layers; each rank is then as many
  int replicas = 1;              // of all that, with micro-batches of their own
  int micro_batch_size = 1;
  OptimizerSpec optimizer;
  DataFiles data;  // empty: random
  cpu::StageOptions options;
  std::uint64_t seed = 1;
  local::ClockKind clock = local::ClockKind::Wall;
  std::int64_t budget_ns = 0;  // at least 3 steps after the first, whatever it says
  const std::atomic<bool>* interrupted = nullptr;
  const ProfileBackend* backend = nullptr;  // null: this machine's CPUs
};

/// Times in ns. The first step warms caches and pools up and is not among them.
struct StageSamples {
  std::vector<std::int64_t> f, i, w;
};
struct ProfileSamples {
  std::vector<StageSamples> stages;            // what each of the devices computes is a sample
  std::vector<std::vector<std::int64_t>> opt;  // by rank, of all its stages together
  int steps = 0;
};

/// On one thread of the CPU.
LossTimes measure_loss(const Model& model, int micro_batch_size, local::ClockKind clock);

/// Throws RunError if it was interrupted, and what a run throws.
ProfileSamples run_profile_case(const ProfileCase& what);

}  // namespace pipewright::exec
