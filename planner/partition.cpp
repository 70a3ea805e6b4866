#include "planner/partition.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace pipewright::planner {
namespace {

// Squares of nanoseconds do not fit 64 bits.
__extension__ using Wide = unsigned __int128;

constexpr Wide kUnreached = ~Wide{0};

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

/// Among the partitions whose stages cost at most `limit`, the most even one. A table of the least
/// sum of squares for the layers from l on in k stages, filled from the end, so that walking it
/// from the front can prefer the shortest first stage.
std::vector<int> most_even_cuts(const std::vector<std::int64_t>& sums, int stages,
                                std::int64_t limit) {
  const int layers = static_cast<int>(sums.size()) - 1;
  const auto width = static_cast<std::size_t>(layers) + 1;
  const auto cell = [width](int k, int l) {
    return static_cast<std::size_t>(k) * width + static_cast<std::size_t>(l);
  };
  const auto stage_cost = [&sums](int begin, int end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
  };
  std::vector<Wide> least(static_cast<std::size_t>(stages + 1) * width, kUnreached);
  std::vector<int> next(least.size(), -1);
  least[cell(0, layers)] = 0;
  for (int k = 1; k <= stages; ++k) {
    for (int l = layers - k; l >= 0; --l) {
      for (int end = l + 1; end <= layers - (k - 1) && stage_cost(l, end) <= limit; ++end) {
        const Wide rest = least[cell(k - 1, end)];
        if (rest == kUnreached) continue;
        const Wide square =
            static_cast<Wide>(stage_cost(l, end)) * static_cast<Wide>(stage_cost(l, end));
        if (rest + square >= least[cell(k, l)]) continue;
        least[cell(k, l)] = rest + square;
        next[cell(k, l)] = end;
      }
    }
  }
  std::vector<int> cuts{0};
  for (int k = stages; k > 0; --k) cuts.push_back(next[cell(k, cuts.back())]);
  return cuts;
}

}  // namespace

std::optional<Partition> balanced_partition(std::span<const std::int64_t> layer_costs, int stages) {
  if (stages < 1 || static_cast<int>(layer_costs.size()) < stages) return std::nullopt;
  const auto sums = prefix_sums(layer_costs);
  Partition partition;
  partition.largest = least_largest(sums, stages);
  partition.first_layer = most_even_cuts(sums, stages, partition.largest);
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
