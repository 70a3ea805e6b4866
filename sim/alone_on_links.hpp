// Transfers that meet no other one on the links of their routes: they take what they take alone.
#pragma once

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/durations.hpp"

namespace pipewright::sim {

/// What Links makes of a transfer that has all links of its route for itself, of each route. No
/// link shares max-min.
std::vector<std::int64_t> alone_ns(const Program& program, const CostTable& costs,
                                   const Durations& durations);

/// True if no two transfers of the timeline were under way on a shared link at the same time, their
/// latency and both ends of the time included. `route_ns` is alone_ns(). O(n log n).
bool keep_apart(const Program& program, const CostTable& costs,
                std::span<const std::int64_t> route_ns, const Timeline& timeline);

}  // namespace pipewright::sim
