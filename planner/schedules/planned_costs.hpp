// What a cost-driven schedule plans with: integers by stage and by rank, taken out of the request's
// cost table once, and the refusals that have to do with them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Durations and waits in ns, memory in bytes.
struct PlannedStage {
  std::int64_t f = 1, i = 1, w = 1;
  std::int64_t wait_f = 0;  // from the end of F on the stage before until it is here
  std::int64_t wait_i = 0;  // from the end of I on the stage after until it is here
  std::int64_t memory_f = 1, memory_i = 0, memory_w = -1;  // as in StageMemory
  std::int32_t rank = 0;
};

struct PlannedCosts {
  int ranks = 0, chunks = 0, micro_batches = 0;
  std::vector<PlannedStage> stages;
  std::vector<std::int32_t> stage_of;  // rank * chunks + chunk
  /// By rank: what may be live after an F, and after an I or a W. The difference is kept free for
  /// an I that takes memory of its own.
  std::vector<std::int64_t> room_f, room_i;
  /// By rank: micro-batches that may be under way at once whatever else happens, at least 1.
  std::vector<std::int64_t> window;
  std::vector<std::int64_t> busy;  // by rank: all its work

  int stage(int rank, int chunk) const {
    return stage_of[static_cast<std::size_t>(rank * chunks + chunk)];
  }
  const PlannedStage& at(int rank, int chunk) const {
    return stages[static_cast<std::size_t>(stage(rank, chunk))];
  }
};

/// `under_way`: where the request sets no memory limit, or keeps the schedule's promise, the
/// forwards of so many micro-batches are the limit of each rank; 0: there is none. Only for
/// requests that refuse_costs() lets pass.
PlannedCosts planned_costs(const ScheduleRequest& request, const Placement& placement,
                           int under_way);

/// Tables of the wrong length, negative costs, sums beyond 64 bits, memory that a micro-batch does
/// not give back, and a limit that not even one micro-batch fits in; nullopt: none of these.
std::optional<std::string> refuse_costs(std::string_view name, const ScheduleRequest& request,
                                        const Placement& placement);

}  // namespace pipewright::planner
