// What stages hold, for a search that asks for the same ones again and again: each is found once.
// Threads may ask at once.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>

#include "planner/memory/memory.hpp"

namespace pipewright::planner {

class StageMemories {
 public:
  /// The model must outlive it.
  StageMemories(const Model& model, std::string optimizer)
      : model_(model), optimizer_(std::move(optimizer)) {}

  struct Entry {
    StageMemory memory;  // memory_of()
    StageState state;    // state_of()
  };
  /// `kind` names the list `recompute` (by layer of the model; empty: nothing).
  Entry of(const StagePlan& stage, int micro_batch_size, int kind,
           std::span<const LayerRecompute> recompute) const;

 private:
  const Model& model_;
  const std::string optimizer_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int, int, int, int>, Entry> known_;  // layers, size, kind
};

}  // namespace pipewright::planner
