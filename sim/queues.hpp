// The engine for policies with queues in which nothing is left to choose: no credit to be taken, no
// link that two transfers want at once. Ends stand in line in the order in which their rank issues
// them, so each instruction's time is a function of the times before it, here too, and ranks can be
// walked in any order without an event queue.
#pragma once

#include <optional>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "sim/durations.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {

/// What run_channels() says of a Program that finishes. nullopt: something may be left to choose
/// (credit, places in flight, batches that are one operation, calls, links that share max-min or on
/// which transfers meet), or it does not finish. O(instructions), with shared links O(n log n).
std::optional<Timeline> run_queues(const Program& program, const CostTable& costs,
                                   const Durations& durations, const Pulse& pulse = {});

}  // namespace pipewright::sim
