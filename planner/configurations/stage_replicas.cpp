#include "planner/configurations/stage_replicas.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/comma_list.hpp"
#include "planner/base/number_text.hpp"
#include "planner/configurations/requested_values.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kMostTried = 128;  // 2 to the power 7: what 8 ranks have at most

/// ways[k][r]: to share r ranks out among k stages, kMostTried + 1 standing for more.
std::vector<std::vector<std::int64_t>> count_ways(int ranks, const std::vector<int>& counts,
                                                  int most_stages) {
  const auto width = static_cast<std::size_t>(ranks) + 1;
  std::vector<std::vector<std::int64_t>> ways(1, std::vector<std::int64_t>(width, 0));
  ways[0][0] = 1;
  for (int k = 1; k <= most_stages; ++k) {
    std::vector<std::int64_t> next(width, 0);
    for (std::size_t r = 0; r < width; ++r) {
      for (const int count : counts) {
        if (static_cast<std::size_t>(count) > r) break;
        next[r] =
            std::min(kMostTried + 1, next[r] + ways.back()[r - static_cast<std::size_t>(count)]);
      }
    }
    ways.push_back(std::move(next));
  }
  return ways;
}

void add_all(int ranks, const std::vector<int>& counts, int stages, std::vector<int>& begun,
             std::vector<std::vector<int>>& all) {
  if (stages == 0) {
    if (ranks == 0) all.push_back(begun);
    return;
  }
  for (const int count : counts) {
    if (count > ranks) break;
    begun.push_back(count);
    add_all(ranks - count, counts, stages - 1, begun, all);
    begun.pop_back();
  }
}

}  // namespace

std::string replicas_text(const std::vector<int>& stage_replicas) {
  std::string text;
  for (const int count : stage_replicas) text += (text.empty() ? "" : ",") + std::to_string(count);
  return text;
}

std::optional<std::vector<int>> read_replicas(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& part : split_at_commas(std::string(text))) {
    const auto count = positive_integer(part);
    if (!count) return std::nullopt;
    counts.push_back(*count);
  }
  if (counts.empty()) return std::nullopt;
  return counts;
}

std::vector<int> default_replicas(int ranks) {
  std::vector<int> counts(static_cast<std::size_t>(std::max(1, ranks - 1)), 1);
  if (ranks > 1) counts.front() = 2;
  return counts;
}

std::map<std::string, std::string> schedule_parameters(const ParallelSetup& parallel) {
  if (parallel.stage_replicas.empty()) return {};
  return {{"replicas", replicas_text(parallel.stage_replicas)}};
}

ScheduleRequest request_of(const ParallelSetup& parallel) {
  return {parallel.pipeline, parallel.micro_batches, parallel.chunks,
          schedule_parameters(parallel)};
}

std::vector<int> first_ranks(const std::vector<int>& stage_replicas) {
  std::vector<int> first(stage_replicas.size());
  std::exclusive_scan(stage_replicas.begin(), stage_replicas.end(), first.begin(), 0);
  return first;
}

Placement first_placement(const std::vector<int>& stage_replicas) {
  std::vector<RankId> rank_of;
  for (const int rank : first_ranks(stage_replicas)) rank_of.emplace_back(rank);
  const int ranks = std::accumulate(stage_replicas.begin(), stage_replicas.end(), 0);
  return Placement::explicit_stages(std::move(rank_of), ranks);
}

Replications replications_of(int ranks, int micro_batches, int most_stages) {
  std::vector<int> counts;
  for (int count = 1; count <= std::min(ranks, micro_batches); ++count) {
    if (micro_batches % count == 0) counts.push_back(count);
  }
  const int most = std::min(ranks, most_stages);
  const auto ways = count_ways(ranks, counts, most);
  Replications found;
  std::int64_t sum = 0;
  for (int k = 1; k <= most; ++k) {
    const std::int64_t own = ways[static_cast<std::size_t>(k)].back();
    if (own > 0) found.stage_counts.push_back(k);
    sum += own;
  }
  if (sum > kMostTried) return found;
  std::vector<int> begun;
  for (const int k : found.stage_counts) add_all(ranks, counts, k, begun, found.all);
  found.stage_counts.clear();
  return found;
}

std::vector<int> asked_ranks(const Strategy& strategy) {
  std::vector<int> ranks = asked_numbers(strategy.pp_degree, "pp_degree");
  if (!ranks.empty()) return ranks;
  for (const std::vector<int>& counts : strategy.stage_replicas)
    ranks.push_back(std::accumulate(counts.begin(), counts.end(), 0));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace pipewright::planner
