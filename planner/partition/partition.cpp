#include "planner/partition/partition.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/int128.hpp"

namespace pipewright::planner {
namespace {

constexpr UInt128 kUnreached = ~UInt128{0};

std::vector<std::int64_t> prefix_sums(std::span<const std::int64_t> costs) {
  std::vector<std::int64_t> sums(costs.size() + 1, 0);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    PIPEWRIGHT_ASSERT(costs[i] >= 0, "a layer's cost is negative");
    sums[i + 1] = sums[i] + costs[i];
  }
  return sums;
}

/// True if at most `stages` stages of at most `limit` hold all layers. Fewer than `stages` is
/// enough: cutting a stage in two never makes the largest larger, and there are enough layers.
bool fits(const std::vector<std::int64_t>& sums, int stages, std::int64_t limit) {
  std::size_t begin = 0;
  for (int s = 0; s < stages && begin + 1 < sums.size(); ++s) {
    const auto end = std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(begin), sums.end(),
                                      sums[begin] + limit);
    begin = static_cast<std::size_t>(end - sums.begin()) - 1;
  }
  return begin + 1 == sums.size();
}

std::int64_t least_largest(const std::vector<std::int64_t>& sums, int stages) {
  std::int64_t low = 0, high = sums.back();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(sums, stages, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Sums of layer costs as each stage's rank has them.
class StageSums {
 public:
  StageSums(std::span<const std::vector<std::int64_t>> sums_of_kind,
            std::span<const int> kind_of_stage, const BesidesLayers& besides)
      : sums_of_kind_(sums_of_kind), kind_of_stage_(kind_of_stage), besides_(besides) {}

  int stages() const { return static_cast<int>(kind_of_stage_.size()); }
  int layers() const { return static_cast<int>(sums_of_kind_.front().size()) - 1; }
  const std::vector<std::int64_t>& of(int stage) const {
    const int kind = kind_of_stage_[static_cast<std::size_t>(stage)];
    return sums_of_kind_[static_cast<std::size_t>(kind)];
  }
  /// What the stage costs besides its layers.
  std::int64_t fixed(int stage) const {
    return besides_.fixed.empty() ? 0 : besides_.fixed[static_cast<std::size_t>(stage)];
  }
  /// What the stage costs at least, with these ends.
  std::int64_t at_ends(int stage, int begin, int end) const {
    if (besides_.at_cut.empty()) return 0;
    const auto& at = besides_.at_cut[static_cast<std::size_t>(stage)];
    return std::max(at[static_cast<std::size_t>(begin)], at[static_cast<std::size_t>(end)]);
  }

 private:
  std::span<const std::vector<std::int64_t>> sums_of_kind_;
  std::span<const int> kind_of_stage_;
  const BesidesLayers& besides_;
};

std::int64_t cost_between(const std::vector<std::int64_t>& sums, int begin, int end) {
  return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
}

/// For any ranks. A stage cut in two may have its second half on a slower rank, so no stage may be
/// left out, and greedy filling is not exact: a table of the least largest stage for the layers
/// from l on in the last k stages.
std::int64_t least_largest_of(const StageSums& sums) {
  const int layers = sums.layers(), stages = sums.stages();
  constexpr std::int64_t kNone = INT64_MAX;
  std::vector<std::int64_t> behind(static_cast<std::size_t>(layers) + 1, kNone), least;
  behind.back() = 0;
  for (int k = 1; k <= stages; ++k) {
    const std::vector<std::int64_t>& own = sums.of(stages - k);
    const std::int64_t fixed = sums.fixed(stages - k);
    least.assign(behind.size(), kNone);
    for (int l = stages - k; l <= layers - k; ++l) {
      std::int64_t& best = least[static_cast<std::size_t>(l)];
      for (int end = l + 1; end <= layers - (k - 1); ++end) {
        const std::int64_t stage = fixed + cost_between(own, l, end);
        if (stage >= best) break;  // and longer ones cost no less
        best = std::min(best, std::max({stage, sums.at_ends(stages - k, l, end),
                                        behind[static_cast<std::size_t>(end)]}));
      }
    }
    behind.swap(least);
  }
  return behind.front();
}

/// The layers with which the last k stages may begin. A layer is skipped if those stages cannot
/// hold what follows it, or the stages before them what comes before it. The more even the
/// partition, the fewer layers are left, which is what makes thousands of layers quick.
struct Begins {
  int least = 0, most = 0;
  std::size_t count() const { return static_cast<std::size_t>(std::max(0, most - least + 1)); }
};

std::vector<Begins> begins_within(const StageSums& sums, std::int64_t limit) {
  const int layers = sums.layers(), stages = sums.stages();
  std::vector<Begins> begins(static_cast<std::size_t>(stages) + 1);
  const auto costs = [&](int stage, int begin, int end) {
    return sums.fixed(stage) + cost_between(sums.of(stage), begin, end);
  };
  int at = layers;
  begins.front().least = layers;
  for (int k = 1; k <= stages; ++k) {
    while (at > 0 &&
           costs(stages - k, at - 1, begins[static_cast<std::size_t>(k) - 1].least) <= limit)
      --at;
    begins[static_cast<std::size_t>(k)].least = at;
  }
  at = 0;
  for (int k = stages; k > 0; --k) {
    const int begin = at;
    begins[static_cast<std::size_t>(k)].most = std::min(begin, layers - k);
    while (at < layers && costs(stages - k, begin, at + 1) <= limit) ++at;
  }
  begins.front().most = layers;
  return begins;
}

/// Among the partitions whose stages cost at most `limit`, the most even one. A table of the least
/// sum of squares for the layers from l on in k stages, filled from the end, so that walking it
/// from the front can prefer the shortest first stage.
std::vector<int> most_even_cuts(const StageSums& sums, std::int64_t limit) {
  const int stages = sums.stages();
  const std::vector<Begins> begins = begins_within(sums, limit);
  std::vector<UInt128> behind{0}, least;
  std::vector<std::vector<int>> next(begins.size());
  for (int k = 1; k <= stages; ++k) {
    const Begins own = begins[static_cast<std::size_t>(k)],
                 rest = begins[static_cast<std::size_t>(k) - 1];
    least.assign(own.count(), kUnreached);
    next[static_cast<std::size_t>(k)].assign(own.count(), -1);
    for (int l = own.least; l <= own.most; ++l) {
      const auto at = static_cast<std::size_t>(l - own.least);
      for (int end = std::max(l + 1, rest.least); end <= rest.most; ++end) {
        const std::int64_t stage =
            sums.fixed(stages - k) + cost_between(sums.of(stages - k), l, end);
        if (stage > limit) break;
        if (sums.at_ends(stages - k, l, end) > limit) continue;
        const UInt128 others = behind[static_cast<std::size_t>(end - rest.least)];
        if (others == kUnreached) continue;
        const UInt128 square = static_cast<UInt128>(stage) * static_cast<UInt128>(stage);
        if (others + square >= least[at]) continue;
        least[at] = others + square;
        next[static_cast<std::size_t>(k)][at] = end;
      }
    }
    behind.swap(least);
  }
  std::vector<int> cuts{0};
  for (auto k = static_cast<std::size_t>(stages); k > 0; --k)
    cuts.push_back(next[k][static_cast<std::size_t>(cuts.back() - begins[k].least)]);
  return cuts;
}

}  // namespace

std::optional<Partition> balanced_partition(std::span<const std::int64_t> layer_costs, int stages) {
  if (stages < 1 || static_cast<int>(layer_costs.size()) < stages) return std::nullopt;
  const std::vector<std::vector<std::int64_t>> sums{prefix_sums(layer_costs)};
  const std::vector<int> kinds(static_cast<std::size_t>(stages), 0);
  const BesidesLayers nothing;
  Partition partition;
  partition.largest = least_largest(sums.front(), stages);
  partition.first_layer = most_even_cuts(StageSums(sums, kinds, nothing), partition.largest);
  return partition;
}

std::optional<Partition> balanced_partition(
    std::span<const std::vector<std::int64_t>> layer_costs_of_kind,
    std::span<const int> kind_of_stage, const BesidesLayers& besides) {
  const int stages = static_cast<int>(kind_of_stage.size());
  const bool alike = besides.fixed.empty() && besides.at_cut.empty() &&
                     std::all_of(kind_of_stage.begin(), kind_of_stage.end(),
                                 [&](int kind) { return kind == kind_of_stage.front(); });
  if (stages > 0 && alike) {
    const auto kind = static_cast<std::size_t>(kind_of_stage.front());
    return balanced_partition(layer_costs_of_kind[kind], stages);
  }
  if (stages < 1 || static_cast<int>(layer_costs_of_kind.front().size()) < stages)
    return std::nullopt;
  std::vector<std::vector<std::int64_t>> sums;
  for (const std::vector<std::int64_t>& costs : layer_costs_of_kind)
    sums.push_back(prefix_sums(costs));
  const StageSums of_stage(sums, kind_of_stage, besides);
  Partition partition;
  partition.largest = least_largest_of(of_stage);
  partition.first_layer = most_even_cuts(of_stage, partition.largest);
  return partition;
}

std::optional<Partition> even_partition(std::span<const std::int64_t> layer_costs, int stages) {
  const int layers = static_cast<int>(layer_costs.size());
  if (stages < 1 || layers < stages) return std::nullopt;
  const auto sums = prefix_sums(layer_costs);
  Partition partition;
  partition.first_layer.push_back(0);
  for (int s = 0; s < stages; ++s) {
    const int begin = partition.first_layer.back();
    const int end = begin + layers / stages + (s < layers % stages ? 1 : 0);
    partition.first_layer.push_back(end);
    partition.largest = std::max(partition.largest, sums[static_cast<std::size_t>(end)] -
                                                        sums[static_cast<std::size_t>(begin)]);
  }
  return partition;
}

}  // namespace pipewright::planner
