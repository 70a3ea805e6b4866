// V-shaped schedules with W apart, made of one building block repeated every six slots: four passes
// in fixed places, W in what is left. The places decide the memory in the steady state; the two
// reorderings then shorten the ends without holding more. Rule of the greedy variant of "Pipeline
// Parallelism with Controllable Memory" (arXiv:2405.15362), as in zbv_greedy.py of
// sail-sg/zero-bubble-pipeline-parallelism. Its squeeze counts every pass as one slot, so the order
// does not depend on costs.
#pragma once

#include "planner/schedules/pass_grid.hpp"

namespace pipewright::planner {

/// The slots from one micro-batch to the next: F, I and W of two chunks.
inline constexpr int kBlockPeriod = 6;

/// Slots that the repeated block and its W's take.
std::int64_t slots_of_block(int micro_batches, std::int64_t last_offset);
/// The order made of the block (by rank; offsets have to rise along the dependencies and to differ
/// mod kBlockPeriod on each rank). Pure.
Order order_of_block(const ScheduleRequest& request, const std::vector<BlockOffsets>& block);

}  // namespace pipewright::planner
