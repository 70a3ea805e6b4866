// The engine for every policy: queues, rendezvous, credit, shared links (docs/semantics.md §2-§5),
// in the order of time.
#pragma once

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "sim/durations.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {

/// O(n log lanes) without shared links.
Result run_channels(const Program& program, const CostTable& costs, const Durations& durations,
                    const Pulse& pulse = {});

}  // namespace pipewright::sim
