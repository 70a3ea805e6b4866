// Live memory of a rank over time, for counters: a value wherever it changes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

struct MemoryStep {
  std::int64_t at_ns = 0;
  std::int64_t activations =
      0;  // live chunk activations: F adds at its start, W and B take at their end
  // What F, I and W have added so far, and older weights that are kept; 0 without a memory table.
  std::int64_t bytes = 0, version_bytes = 0;
};

/// By time, one entry a moment (the last value of that moment), the first at 0. Looks at what has
/// ended.
std::vector<MemoryStep> memory_steps(const Program& program, const Timeline& timeline,
                                     const CostTable& costs, RankId rank);

/// Bytes of the rank's stages that are always there; 0 without a memory table.
std::int64_t constant_bytes(const Program& program, const CostTable& costs, RankId rank);

}  // namespace pipewright::traces
