#include "sim/what_if/median_elsewhere.hpp"

#include <algorithm>
#include <numeric>

#include "sim/what_if/timed_program.hpp"

namespace pipewright::sim {
namespace {

constexpr int kAllStages = -1;

int kind_of(const TimedAction& action) {
  return action.is_pair() ? kActionKinds : static_cast<int>(action.cell.action.kind);
}

bool has_one_stage(const TimedAction& action) {
  return !action.is_pair() && has_stage(action.cell.action.kind);
}

}  // namespace

MedianElsewhere::MedianElsewhere(const TimedProgram& program, std::span<const std::int64_t> ns)
    : program_(program) {
  const std::vector<TimedAction>& actions = program.actions();
  std::vector<std::size_t> by_time(actions.size());
  std::iota(by_time.begin(), by_time.end(), std::size_t{0});
  std::stable_sort(by_time.begin(), by_time.end(),
                   [ns](std::size_t a, std::size_t b) { return ns[a] < ns[b]; });
  const auto add = [&](const Key& key, std::size_t a) {
    Group& group = groups_[key];
    group.of_rank[actions[a].rank.value].push_back(group.ns.size());
    group.ns.push_back(ns[a]);
  };
  for (const std::size_t a : by_time) {
    add({kind_of(actions[a]), kAllStages}, a);
    if (has_one_stage(actions[a]))
      add({kind_of(actions[a]), actions[a].cell.action.stage.value}, a);
  }
}

std::optional<std::int64_t> MedianElsewhere::of(std::size_t action) const {
  const TimedAction& it = program_.actions()[action];
  if (has_one_stage(it)) {
    const Group& same = groups_.at({kind_of(it), it.cell.action.stage.value});
    if (const auto median = same.median_without(it.rank.value)) return median;
  }
  return groups_.at({kind_of(it), kAllStages}).median_without(it.rank.value);
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

}  // namespace pipewright::sim
