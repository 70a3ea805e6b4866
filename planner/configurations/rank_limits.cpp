#include "planner/configurations/rank_limits.hpp"

#include <algorithm>

#include "planner/configurations/stage_replicas.hpp"

namespace pipewright::planner {

Bytes RankLimits::of(int rank) const {
  if (all.value <= 0 || own.empty()) return all;
  return std::min(all, own[static_cast<std::size_t>(rank)]);
}

RankLimits limits_of(const ConfigurationCosts& costs, const ParallelSetup& mesh, Bytes limit) {
  return {limit, limit.value > 0 ? costs.rank_memory(mesh) : std::vector<Bytes>{}};
}

bool may_hold(const RankLimits& limits, int ranks, Bytes least) {
  if (limits.all.value <= 0) return true;
  if (limits.own.empty()) return least <= limits.all;
  Bytes sum;
  for (int rank = 0; rank < ranks; ++rank) sum += limits.of(rank);
  return least * ranks <= sum;
}

ScheduleRequest request_for(const ParallelSetup& parallel, const std::vector<StagePlan>& stages,
                            CostTable costs, const RankLimits& limits) {
  Bytes most = limits.all;
  if (most.value > 0 && !limits.own.empty()) {
    most = Bytes(0);
    for (int rank = 0; rank < parallel.pipeline; ++rank) most = std::max(most, limits.of(rank));
    std::vector<bool> seen(static_cast<std::size_t>(parallel.pipeline), false);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto rank = static_cast<std::size_t>(stages[s].rank.value);
      if (!seen[rank]) costs.memory[s].constant += most - limits.of(static_cast<int>(rank));
      seen[rank] = true;
    }
  }
  ScheduleRequest request = request_of(parallel);
  request.costs = std::move(costs);
  request.memory_limit = most;
  request.keeps_promise = true;  // who names zb-1p wants 1F1B's memory, whatever the devices have
  return request;
}

}  // namespace pipewright::planner
