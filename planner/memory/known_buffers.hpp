// What stages of one model hold, for a search that asks for the same ones again and again: each is
// found once. Threads may ask at once.
#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "planner/memory/stage_buffers.hpp"

namespace pipewright::planner {

class KnownBuffers {
 public:
  /// buffers_of(), always for the same model, recompute and number of ranks.
  StageBuffers of(const Model& model, const StagePlan& stage, int micro_batch_size,
                  std::span<const LayerRecompute> recompute, const StageDivision& ranks);

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, StageBuffers> known_;  // by layers and size
};

}  // namespace pipewright::planner
