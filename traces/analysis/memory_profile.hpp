// What each rank holds over time, and what is alive where that is most. The peaks are those of
// figures_of(), exactly: both walk the same rules (core/timeline/live_memory). Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// From `at_ns` on. While an action runs: the most it holds at once.
struct HeldStep {
  std::int64_t at_ns = 0;
  std::int64_t bytes = 0;  // 0 without a memory table
  int activations = 0;
};

/// A micro-batch of a stage that is kept for its backward, or for its W alone.
struct AliveActivation {
  StageId stage;
  MicroBatchId micro_batch;
  bool for_weights_alone = false;
  std::int64_t bytes = 0;
};

struct MemoryPeak {
  std::int64_t at_ns = 0, bytes = 0;
  int activations = 0;                         // alive then
  InstructionId instruction = kNoInstruction;  // during which; kNoInstruction: before all
  std::int64_t constant_bytes = 0;             // of the rank's stages, always there
  std::vector<AliveActivation> alive;          // in the order of their forwards
  /// What the running action needs besides, older weights, arrays that are whole for a while.
  std::int64_t other_bytes() const;
};

struct MemoryProfile {
  std::vector<HeldStep> steps;  // by time, of one moment the most; the first at 0
  MemoryPeak peak;  // the first moment of the most bytes; without a table of the most activations
};

/// One a rank. Of what has not ended nothing is shown, so the peak of a step that got stuck is that
/// of what it did.
std::vector<MemoryProfile> memory_profiles(const Program& program, const Timeline& timeline,
                                           const CostTable& costs);

}  // namespace pipewright::traces
