#include "traces/analysis/median_elsewhere.hpp"

#include <algorithm>
#include <numeric>

namespace pipewright::traces {

MedianElsewhere::MedianElsewhere(std::span<const PlacedTime> times) : times_(times) {
  std::vector<std::size_t> by_time(times.size());
  std::iota(by_time.begin(), by_time.end(), std::size_t{0});
  std::stable_sort(by_time.begin(), by_time.end(),
                   [times](std::size_t a, std::size_t b) { return times[a].ns < times[b].ns; });
  const auto add = [&](const Key& key, const PlacedTime& time) {
    Group& group = groups_[key];
    group.of_rank[time.rank].push_back(group.ns.size());
    group.ns.push_back(time.ns);
  };
  for (const std::size_t i : by_time) {
    add({times[i].kind, PlacedTime::kNoStage}, times[i]);
    if (times[i].stage != PlacedTime::kNoStage) add({times[i].kind, times[i].stage}, times[i]);
  }
}

std::optional<std::int64_t> MedianElsewhere::of(std::size_t time) const {
  const PlacedTime& it = times_[time];
  if (it.stage != PlacedTime::kNoStage) {
    if (const auto median = groups_.at({it.kind, it.stage}).median_without(it.rank)) return median;
  }
  return groups_.at({it.kind, PlacedTime::kNoStage}).median_without(it.rank);
}

std::optional<std::int64_t> MedianElsewhere::of_stage(std::size_t time) const {
  const PlacedTime& it = times_[time];
  if (it.stage == PlacedTime::kNoStage) return std::nullopt;
  const Group& group = groups_.at({it.kind, it.stage});
  if (const auto median = group.median_without(it.rank)) return median;
  return group.median_without_one(it.ns);
}

std::optional<std::int64_t> MedianElsewhere::Group::median_without(int rank) const {
  const std::vector<std::size_t>& own = of_rank.at(rank);
  const std::size_t others = ns.size() - own.size();
  if (others == 0) return std::nullopt;
  const std::size_t wanted = (others - 1) / 2;
  // Of its own that stand before the wanted one of the others: those with at most `wanted` others
  // before them.
  std::size_t low = 0, high = own.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (own[middle] - middle <= wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return ns[wanted + low];
}

std::optional<std::int64_t> MedianElsewhere::Group::median_without_one(
    std::int64_t left_out) const {
  if (ns.size() < 2) return std::nullopt;
  const std::size_t wanted = (ns.size() - 2) / 2;
  return ns[left_out <= ns[wanted] ? wanted + 1 : wanted];
}

}  // namespace pipewright::traces
