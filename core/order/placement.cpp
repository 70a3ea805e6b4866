#include "core/order/placement.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright {

Placement Placement::loop(int ranks, int chunks) {
  Placement placement;
  placement.name_ = "loop";
  placement.ranks_ = ranks;
  placement.stages_ = ranks * chunks;
  for (int s = 0; s < placement.stages_; ++s) placement.table_.emplace_back(s % ranks);
  return placement;
}

Placement Placement::v_shape(int ranks) {
  Placement placement;
  placement.name_ = "v";
  placement.ranks_ = ranks;
  placement.stages_ = 2 * ranks;
  for (int s = 0; s < 2 * ranks; ++s)
    placement.table_.emplace_back(s < ranks ? s : 2 * ranks - 1 - s);
  return placement;
}

Placement Placement::explicit_stages(std::vector<RankId> rank_of_stage, int ranks) {
  Placement placement;
  placement.ranks_ = ranks;
  placement.stages_ = static_cast<int>(rank_of_stage.size());
  placement.table_ = std::move(rank_of_stage);
  return placement;
}

Placement Placement::explicit_micro_batches(std::vector<std::vector<RankId>> rank_of, int ranks) {
  Placement placement;
  placement.ranks_ = ranks;
  placement.stages_ = static_cast<int>(rank_of.size());
  placement.micro_batches_ = rank_of.empty() ? 0 : static_cast<int>(rank_of.front().size());
  for (const auto& row : rank_of) {
    PIPEWRIGHT_ASSERT(static_cast<int>(row.size()) == placement.micro_batches_,
                      "ragged placement table");
    placement.table_.insert(placement.table_.end(), row.begin(), row.end());
  }
  return placement;
}

std::vector<StageId> Placement::stages_of(RankId rank) const {
  std::vector<StageId> found;
  const int columns = std::max(1, micro_batches_);
  for (int s = 0; s < stages_; ++s) {
    const auto row = table_.begin() + static_cast<std::ptrdiff_t>(s) * columns;
    if (std::find(row, row + columns, rank) != row + columns) found.emplace_back(s);
  }
  return found;
}

}  // namespace pipewright
