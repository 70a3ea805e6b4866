#include "planner/weight_copies.hpp"

#include <algorithm>
#include <map>

namespace pipewright::planner {
namespace {

/// One rank's walk through its list.
class VersionCount {
 public:
  void take(const Action& action) {
    if (action.kind == ActionKind::Opt) ++current_;
    if (action.version >= 0) {
      if (action.kind == ActionKind::F) ++in_flight_[action.version];
      if (action.kind == ActionKind::W || action.kind == ActionKind::B) release(action.version);
    }
    const int kept =
        static_cast<int>(in_flight_.size()) + (in_flight_.count(current_) == 0 ? 1 : 0);
    most_ = std::max(most_, kept);
  }
  int most() const { return most_; }

 private:
  void release(int version) {
    const auto found = in_flight_.find(version);
    if (found != in_flight_.end() && --found->second == 0) in_flight_.erase(found);
  }

  std::map<int, int> in_flight_;  // micro-batches by version
  int current_ = 0, most_ = 1;
};

}  // namespace

std::vector<int> live_versions(const Order& order) {
  std::vector<int> most;
  for (const auto& cells : order.ranks) {
    VersionCount count;
    for (const Cell& cell : cells) {
      if (cell.action.kind == ActionKind::Idle) continue;
      count.take(cell.action);
      if (cell.partner) count.take(*cell.partner);
    }
    most.push_back(count.most());
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
