#include "core/order/stages_by_rank.hpp"

namespace pipewright {

std::vector<std::vector<StageId>> stages_by_rank(const Placement& placement, int micro_batches) {
  std::vector<std::vector<StageId>> stages(static_cast<std::size_t>(placement.ranks()));
  const int columns = placement.looks_at_micro_batch() ? micro_batches : 1;
  for (int s = 0; s < placement.stages(); ++s) {
    for (int m = 0; m < columns; ++m) {
      const RankId home = placement.rank_of(StageId(s), MicroBatchId(m));
      if (home.value < 0 || home.value >= placement.ranks()) continue;
      auto& own = stages[static_cast<std::size_t>(home.value)];
      if (own.empty() || own.back() != StageId(s)) own.emplace_back(s);
    }
  }
  return stages;
}

}  // namespace pipewright
