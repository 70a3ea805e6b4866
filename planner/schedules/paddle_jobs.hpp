// Paddle's job lists as orders with their transfer ends. The place of a transfer end in the list is
// what makes Paddle's schedules hang or pass, so these orders carry them, and lowering takes them
// as written.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "planner/schedules/chunk_turns.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

enum class PaddleJobs {
  Fused,  // a job receives, computes and sends: Paddle's lists before its fix
  Split,  // recv_forward and send_backward are jobs of their own, one more warm-up forward
};

/// The parameter "jobs"; nullopt where it is not there or not one of "fused" and "split".
std::optional<PaddleJobs> jobs_of(const ScheduleRequest& request);
/// A sentence where the parameter "jobs" is there and is neither.
std::optional<std::string> refuse_jobs(const ScheduleRequest& request);

/// The lists of all ranks. `warm_up` gives the forwards of a rank before its first backward as the
/// fused list counts them; a split list has one more (at most all of them) and then alternates
/// backward, recv_forward, send_backward, forward.
Order make_paddle_order(const ScheduleRequest& request, PaddleJobs jobs, const ChunkTurns& turns,
                        std::int64_t (*warm_up)(const ScheduleRequest&, int rank));

}  // namespace pipewright::planner
