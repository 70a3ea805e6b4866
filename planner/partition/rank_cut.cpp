#include "planner/partition/rank_cut.hpp"

#include <algorithm>
#include <tuple>

#include "core/base/int128.hpp"

namespace pipewright::planner {
namespace {

/// How uneven the ranks are: less is better.
struct Unevenness {
  std::int64_t largest = 0;                    // of the ranks
  UInt128 squares = 0, squares_of_stages = 0;  // of the ranks, of the stages

  bool operator<(const Unevenness& other) const {
    return std::tie(largest, squares, squares_of_stages) <
           std::tie(other.largest, other.squares, other.squares_of_stages);
  }
};

class Evening {
 public:
  Evening(Partition partition, const LayerCosts& costs, const CutShape& shape)
      : cuts_(std::move(partition.first_layer)), shape_(shape) {
    for (const std::vector<std::int64_t>& of_kind : costs.of_kind) {
      std::vector<std::int64_t> sums{0};
      for (const std::int64_t cost : of_kind) sums.push_back(sums.back() + cost);
      sums_.push_back(std::move(sums));
    }
    const int ranks = 1 + *std::max_element(shape.rank_of_stage.begin(), shape.rank_of_stage.end());
    loads_.assign(static_cast<std::size_t>(ranks), 0);
  }

  Partition run() {
    while (improve()) {
    }
    Partition partition;
    for (int s = 0; s < stages(); ++s) partition.largest = std::max(partition.largest, cost(s));
    partition.first_layer = std::move(cuts_);
    return partition;
  }

 private:
  int stages() const { return static_cast<int>(shape_.kind_of_stage.size()); }
  std::int64_t cost(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    const auto& sums = sums_[static_cast<std::size_t>(shape_.kind_of_stage[s])];
    return sums[static_cast<std::size_t>(cuts_[s + 1])] - sums[static_cast<std::size_t>(cuts_[s])];
  }

  Unevenness measure() {
    std::fill(loads_.begin(), loads_.end(), 0);
    Unevenness uneven;
    for (int s = 0; s < stages(); ++s) {
      const std::int64_t own = cost(s);
      loads_[rank_of(s)] += own;
      uneven.squares_of_stages += static_cast<UInt128>(own) * static_cast<UInt128>(own);
    }
    for (const std::int64_t load : loads_) {
      uneven.largest = std::max(uneven.largest, load);
      uneven.squares += static_cast<UInt128>(load) * static_cast<UInt128>(load);
    }
    return uneven;
  }
  std::size_t rank_of(int stage) const {
    return static_cast<std::size_t>(shape_.rank_of_stage[static_cast<std::size_t>(stage)]);
  }

  /// The borders between two stages, by one towards `from`.
  void shift(int from, int to, int by) {
    for (int b = std::min(from, to) + 1; b <= std::max(from, to); ++b)
      cuts_[static_cast<std::size_t>(b)] += from < to ? -by : by;
  }
  bool may_give(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    return cuts_[s + 1] - cuts_[s] > 1;
  }

  bool improve() {
    Unevenness best = measure();
    std::vector<int> givers;
    for (int s = 0; s < stages(); ++s) {
      if (loads_[rank_of(s)] == best.largest && may_give(s)) givers.push_back(s);
    }
    int from = -1, to = -1;
    for (const int giver : givers) {
      for (int taker = 0; taker < stages(); ++taker) {
        if (taker == giver) continue;
        shift(giver, taker, 1);
        const Unevenness now = measure();
        shift(giver, taker, -1);
        if (!(now < best)) continue;
        best = now;
        from = giver;
        to = taker;
      }
    }
    if (from >= 0) shift(from, to, 1);
    return from >= 0;
  }

  std::vector<int> cuts_;
  const CutShape& shape_;
  std::vector<std::vector<std::int64_t>> sums_;  // by kind
  std::vector<std::int64_t> loads_;              // by rank, of the last measure()
};

}  // namespace

CutShape cut_shape(const LayerCosts& costs, const Placement& placement) {
  CutShape shape;
  for (int s = 0; s < placement.stages(); ++s) {
    const RankId rank = placement.rank_of(StageId(s), MicroBatchId(0));
    shape.rank_of_stage.push_back(static_cast<int>(rank.value));
    shape.kind_of_stage.push_back(costs.kind(shape.rank_of_stage.back()));
  }
  const bool alike = std::all_of(shape.kind_of_stage.begin(), shape.kind_of_stage.end(),
                                 [&](int kind) { return kind == shape.kind_of_stage.front(); });
  if (alike || placement.stages() <= placement.ranks()) shape.rank_of_stage.clear();
  return shape;
}

Partition rank_evened(Partition partition, const LayerCosts& costs, const CutShape& shape) {
  return Evening(std::move(partition), costs, shape).run();
}

}  // namespace pipewright::planner
