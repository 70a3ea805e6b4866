#include "planner/memory/weight_copies.hpp"

#include <algorithm>

#include "core/program/version_changes.hpp"

namespace pipewright::planner {

std::vector<int> live_versions(const Order& order) {
  std::vector<int> most;
  for (int r = 0; r < order.rank_count(); ++r) {
    const auto& list = order.ranks[static_cast<std::size_t>(r)];
    const std::vector<StageId> stages = order.placement.stages_of(RankId(r));
    std::vector<int> kept(static_cast<std::size_t>(order.stages()), 1);
    most.push_back(1);
    for (const VersionChange& version : version_changes(list, stages)) {
      int& of_stage = kept[static_cast<std::size_t>(version.stage)];
      of_stage += version.change;
      most.back() = std::max(most.back(), of_stage);
    }
  }
  return most;
}

double weight_copies(const Order& order) {
  const std::vector<int> versions = live_versions(order);
  double stages = 0;
  for (int r = 0; r < order.rank_count(); ++r) {
    stages += static_cast<double>(order.placement.stages_of(RankId(r)).size()) *
              versions[static_cast<std::size_t>(r)];
  }
  return stages / order.stages();
}

}  // namespace pipewright::planner
