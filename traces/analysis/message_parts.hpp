// What the time of a message consists of. Nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

struct MessageParts {
  std::int64_t queue_ns = 0, bandwidth_ns = 0, latency_ns = 0;  // in this order of time
};

/// Of one timeline's messages. The Program and the timeline must outlive it.
class MessageTimes {
 public:
  /// With costs: what a message takes alone is its route's latency and bytes, the rest queue. With
  /// a table without stages: the fastest message of a route is its latency, the rest queue.
  MessageTimes(const Program& program, const Timeline& timeline, const CostTable& costs);

  /// From when its data began to move to the end of the transfer end.
  MessageParts of(InstructionId transfer_end) const;

 private:
  std::int64_t whole(InstructionId id) const { return timeline_.end[id] - timeline_.moving[id]; }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<std::int64_t> latency_ns_, bandwidth_ns_;  // by route
};

}  // namespace pipewright::traces
