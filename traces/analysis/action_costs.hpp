// What a traced step says its actions cost, so that a simulation of the same order repeats it.
// Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/action_times.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

struct ActionCosts {
  std::vector<ActionTime> times;  // of one replica, in the order of each rank
  /// Of a transfer: the least that lies between the end of the computation that makes a tensor and
  /// the end of its receive.
  Nanoseconds latency;
  std::size_t messages = 0;  // that this was found from
};

/// An action takes from the moment when it could have begun until its end: the rank's previous
/// computation has ended (of its first: the step has begun), and its inputs have been made and on
/// their way for `latency`. So what lies between is a part of it: the host's work for the next
/// action, a transfer that took longer. An update's time holds the reductions before it; of several
/// of a rank the mean. Every computation of the Program has ended.
ActionCosts action_costs(const Program& program, const Timeline& timeline);

}  // namespace pipewright::traces
