#include "planner/memory/stage_memories.hpp"

namespace pipewright::planner {

StageMemories::Entry StageMemories::of(const StagePlan& stage, int micro_batch_size, int kind,
                                       std::span<const LayerRecompute> recompute) const {
  const std::tuple key{stage.first_layer, stage.end_layer, micro_batch_size, kind};
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
  }
  const Entry entry{memory_of(model_, stage, micro_batch_size, optimizer_, recompute),
                    state_of(model_, stage, optimizer_)};
  const std::lock_guard lock(mutex_);
  return known_.emplace(key, entry).first->second;
}

}  // namespace pipewright::planner
