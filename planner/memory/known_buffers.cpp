#include "planner/memory/known_buffers.hpp"

namespace pipewright::planner {

StageBuffers KnownBuffers::of(const Model& model, const StagePlan& stage, int micro_batch_size,
                              std::span<const LayerRecompute> recompute,
                              const StageDivision& ranks) {
  const std::tuple key{stage.first_layer, stage.end_layer, micro_batch_size};
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
  }
  const StageBuffers buffers = buffers_of(model, stage, micro_batch_size, recompute, ranks);
  const std::lock_guard lock(mutex_);
  return known_.emplace(key, buffers).first->second;
}

}  // namespace pipewright::planner
