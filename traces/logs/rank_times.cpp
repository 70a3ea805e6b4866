#include "traces/logs/rank_times.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/base/error.hpp"

namespace pipewright::traces {
namespace {

/// Where the time of a timer belongs; nullptr where another timer's holds it already.
std::int64_t RankTimes::*part_of(std::string_view timer) {
  if (timer == kPassesTimer) return &RankTimes::passes;
  if (timer == "forward-compute") return &RankTimes::forward;
  if (timer == "backward-compute") return &RankTimes::backward;
  if (timer == "optimizer") return &RankTimes::optimizer;
  if (timer.ends_with("-recv") || timer.ends_with("-send")) return &RankTimes::messages;
  if (timer == "all-grads-sync" || timer.ends_with("-grads-all-reduce")) return &RankTimes::sums;
  return nullptr;
}

/// Of an even number the smaller of the middle two.
template <class Value>
Value median(std::vector<Value> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StageTimes stage_of(const std::vector<RankTimes>& all, std::vector<int> ranks) {
  const auto median_of = [&](auto part) {
    std::vector<std::int64_t> times;
    for (const int rank : ranks) times.push_back(std::invoke(part, all[std::size_t(rank)]));
    return median(std::move(times));
  };
  StageTimes stage;
  for (const auto part : {&RankTimes::passes, &RankTimes::forward, &RankTimes::backward,
                          &RankTimes::messages, &RankTimes::sums, &RankTimes::optimizer}) {
    stage.median.*part = median_of(part);
  }
  const std::int64_t usual = median_of(&RankTimes::computing);
  stage.slowest = *std::max_element(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[std::size_t(a)].computing() < all[std::size_t(b)].computing();
  });
  const auto longest = static_cast<double>(all[std::size_t(stage.slowest)].computing());
  if (usual > 0) stage.above = longest / static_cast<double>(usual) - 1;
  stage.ranks = std::move(ranks);
  return stage;
}

}  // namespace

std::vector<RankTimes> rank_times_of(const TimedIterations& print, const std::string& file) {
  for (const char* const needed : {kPassesTimer, "forward-compute", "backward-compute"}) {
    if (print.times.count(needed) > 0) continue;
    throw InputError(file, "",
                     "expected the timer \"" + std::string(needed) +
                         "\"; start Megatron-LM with --timing-log-level 2");
  }
  std::vector<RankTimes> ranks(print.times.begin()->second.size());
  for (const auto& [timer, times] : print.times) {
    const auto part = part_of(timer);
    if (part == nullptr) continue;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].*part += times[rank];
  }
  return ranks;
}

std::size_t median_print(const std::vector<TimedIterations>& prints) {
  std::vector<std::pair<std::int64_t, std::size_t>> longest;
  for (std::size_t i = 0; i < prints.size(); ++i) {
    const auto passes = prints[i].times.find(kPassesTimer);
    const bool known = passes != prints[i].times.end();
    longest.emplace_back(
        known ? *std::max_element(passes->second.begin(), passes->second.end()) : 0, i);
  }
  return median(std::move(longest)).second;
}

std::vector<StageTimes> stage_times_of(const std::vector<RankTimes>& ranks, int stages) {
  const std::size_t each = ranks.size() / static_cast<std::size_t>(stages);
  std::vector<StageTimes> all;
  for (int s = 0; s < stages; ++s) {
    std::vector<int> members(each);
    std::iota(members.begin(), members.end(), s * static_cast<int>(each));
    all.push_back(stage_of(ranks, std::move(members)));
  }
  return all;
}

}  // namespace pipewright::traces
