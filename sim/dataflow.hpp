// The engine for policies without waits (preset ideal): no queue, no credit, no shared link. Each
// instruction's time is a function of its inputs' times, so ranks can be walked in any order and no
// event queue is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"
#include "sim/durations.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {

/// Fills `end` (by instruction, kNotEnded where the Program gets stuck) and returns the last end;
/// needs program.policy.is_free_of_waits(). `end` may be reused between calls. O(instructions);
/// transfers end at arrival.
std::int64_t run_dataflow(const Program& program, const Durations& durations,
                          std::vector<std::int64_t>& end, const Pulse& pulse = {});

}  // namespace pipewright::sim
