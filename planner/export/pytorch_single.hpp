// What PyTorch's two schedules of one stage a rank do, which keep no list of their actions: read in
// torch/distributed/pipelining/schedules.py of 2.13.
#pragma once

#include <string_view>

#include "core/order/order.hpp"

namespace pipewright::planner {

/// Every action of every rank of "Schedule1F1B" or "ScheduleGPipe": transfers, batched where the
/// class batches them, and the waits for sends. Throws InputError for another class, for sizes
/// below 1 and, of Schedule1F1B, for fewer micro-batches than ranks, which it refuses.
Order torch_single_list(std::string_view schedule_class, int ranks, int micro_batches);

}  // namespace pipewright::planner
