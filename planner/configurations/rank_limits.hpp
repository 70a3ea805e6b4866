// What each rank of a pipeline may hold. Pure functions.
#pragma once

#include <utility>
#include <vector>

#include "core/base/units.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

struct RankLimits {
  Bytes all;               // of every rank; 0: no limit at all
  std::vector<Bytes> own;  // by rank, where they differ; empty: they do not

  // NOLINTNEXTLINE(google-explicit-constructor): one limit for all ranks is the usual case
  RankLimits(Bytes every = {}, std::vector<Bytes> by_rank = {})
      : all(every), own(std::move(by_rank)) {}

  /// 0: none.
  Bytes of(int rank) const;
};

/// `limit`: the search's, 0: none; where nodes differ no rank has more than its own devices.
RankLimits limits_of(const ConfigurationCosts& costs, const ParallelSetup& mesh, Bytes limit);

/// False where the ranks' limits together are less than what `ranks` ranks hold if the fullest has
/// no more than `least`: then some rank has to hold more than it may.
bool may_hold(const RankLimits& limits, int ranks, Bytes least);

/// The request to a schedule, which knows one limit for all ranks if it plans for memory: what a
/// rank's limit is below the largest counts as taken from the start.
ScheduleRequest request_for(const ParallelSetup& parallel, const std::vector<StagePlan>& stages,
                            CostTable costs, const RankLimits& limits);

}  // namespace pipewright::planner
