// PyTorch's rounds: an interleaved schedule takes its micro-batches in rounds of equal size, and
// each round goes through all chunks of a rank before the next one starts
// (pytorch/pytorch torch/distributed/pipelining/schedules.py). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Micro-batches in a round: there are as many rounds as p fits into m, at least one.
int equal_round(const ScheduleRequest& request);

/// Refuses micro-batches that do not divide into these rounds; the sentence ends with the nearest
/// counts that do.
std::optional<std::string> refuse_unequal_rounds(std::string_view name,
                                                 const ScheduleRequest& request);

}  // namespace pipewright::planner
