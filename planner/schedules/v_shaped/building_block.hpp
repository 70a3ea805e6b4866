// V-shaped schedules with W apart, made of one building block repeated every six slots: four passes
// in fixed places, W in what is left. The places decide the memory in the steady state; the two
// reorderings then shorten the ends without holding more. Rule of the greedy variant of "Pipeline
// Parallelism with Controllable Memory" (arXiv:2405.15362), as in zbv_greedy.py of
// sail-sg/zero-bubble-pipeline-parallelism. Its squeeze counts every pass as one slot, so the order
// does not depend on costs.
#pragma once

#include "planner/schedules/v_shaped/pass_grid.hpp"

namespace pipewright::planner {

/// The slots from one micro-batch to the next: F, I and W of two chunks.
inline constexpr int kBlockPeriod = 6;

/// The slots of a rank's passes. They have to rise along the dependencies and to differ mod
/// kBlockPeriod on each rank.
using BlockRule = BlockOffsets (*)(int rank, int ranks);

/// Refuses all but two chunks, and a grid that is too large.
std::optional<std::string> refuse_block(std::string_view schedule, const ScheduleRequest& request,
                                        BlockRule offsets);
/// The order made of the block. Pure.
Order order_of_block(const ScheduleRequest& request, BlockRule offsets);

/// The entry of a schedule made so, but for its aliases and what it says of itself. `Block` has
/// kName and offsets(), a BlockRule.
template <class Block>
Schedule block_schedule() {
  Schedule entry;
  entry.name = Block::kName;
  entry.text.constraint = "v = 2; any p, m";
  entry.text.source =
      "Pipeline Parallelism with Controllable Memory (arXiv:2405.15362), zbv_greedy.py of "
      "sail-sg/zero-bubble-pipeline-parallelism";
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.refusal = [](const ScheduleRequest& request) {
    return refuse_block(Block::kName, request, Block::offsets);
  };
  entry.make = [](const ScheduleRequest& request) {
    return order_of_block(request, Block::offsets);
  };
  return entry;
}

}  // namespace pipewright::planner
