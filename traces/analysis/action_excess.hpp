// By how much a computation takes longer than it might: than its like elsewhere, than the action
// that it feeds. Nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// Of the producer over an action of the same kind, both or neither pairs, that it feeds; else, and
/// where it takes less or has not ended, 0.
std::int64_t excess_over_consumer(const Program& program, const Timeline& timeline,
                                  InstructionId producer, InstructionId consumer);

/// Over the median of the same kind and stage elsewhere: on other ranks; where the stage is on no
/// other, of its other micro-batches. A part is compared with the same part of other actions, a
/// pair with pairs of the same first stage. Computed for all at once, O(n log n).
class ActionExcess {
 public:
  ActionExcess(const Program& program, const Timeline& timeline);
  /// Never negative; 0 of what has no stage or no like.
  std::int64_t over_median(InstructionId computation) const { return over_median_[computation]; }

 private:
  std::vector<std::int64_t> over_median_;  // by instruction
};

}  // namespace pipewright::traces
