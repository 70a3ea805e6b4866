// Measures by training: a model cut into given stages runs 1F1B on several ranks with the same
// engine, device and clock as any other run, and every computation's time is kept. So a layer is
// measured with the caches, allocations, messages and neighbours that it has in a run.
// Starts and joins its own threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/model.hpp"
#include "exec/local/transport.hpp"
#include "exec/optimizer.hpp"

namespace pipewright::exec {

struct ProfileCase {
  const Model* model = nullptr;
  std::vector<int> stage_begin;  // by stage: its first layer
  std::vector<int> first_stage;  // by rank: the first of its stages, which lie next to each other
  int micro_batch_size = 1;
  OptimizerSpec optimizer;
  std::uint64_t seed = 1;
  local::ClockKind clock = local::ClockKind::Wall;
  std::int64_t budget_ns = 0;  // at least 3 steps behind the first, whatever it says
  const std::atomic<bool>* interrupted = nullptr;
};

/// Times in ns. The first step warms caches and pools up and is not among them.
struct StageSamples {
  std::vector<std::int64_t> f, i, w;
};
struct ProfileSamples {
  std::vector<StageSamples> stages;
  std::vector<std::vector<std::int64_t>> opt;  // by rank, of all its stages together
  int steps = 0;
};

/// Medians of the loss and of its gradient, alone on one thread; the last stage's F and I hold
/// them.
struct LossTimes {
  std::int64_t f = 0, i = 0;  // ns
};
LossTimes measure_loss(const Model& model, int micro_batch_size, local::ClockKind clock);

/// Throws RunError if it was interrupted, and what a run throws.
ProfileSamples run_profile_case(const ProfileCase& what);

}  // namespace pipewright::exec
