// What a rank of any device has of a training, as far as checkpoints ask. Plain data.
#pragma once

#include <cstddef>
#include <vector>

#include "core/program/program.hpp"
#include "exec/devices/cpu/strands.hpp"
#include "exec/training/stage.hpp"

namespace pipewright::exec::cpu {

struct TrainedRank {
  /// By stage; null where another rank has it. Empty: the rank lives in another process.
  std::vector<TrainableStage*> stages;
  /// The ranks that divide its stages with it; null on a device that does not.
  const GroupsOfRank* groups = nullptr;

  bool is_here() const { return !stages.empty(); }
  TrainableStage& stage(StageId id) const { return *stages[static_cast<std::size_t>(id.value)]; }
};

/// By rank; `devices` likewise, null where the rank lives in another process.
template <class Devices>
std::vector<TrainedRank> trained_ranks(const Program& program, const Devices& devices) {
  std::vector<TrainedRank> ranks;
  for (const auto* const device : devices) {
    TrainedRank& rank = ranks.emplace_back();
    if (device == nullptr) continue;
    for (int s = 0; s < program.stages; ++s) rank.stages.push_back(device->stage(StageId(s)));
    if constexpr (requires { device->groups(); }) rank.groups = &device->groups();
  }
  return ranks;
}

}  // namespace pipewright::exec::cpu
