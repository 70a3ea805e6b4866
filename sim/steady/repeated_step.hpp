// The figures of a step whose steady state comes more often than in the one that was simulated.
#pragma once

#include <cstdint>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/steady/steady_state.hpp"

namespace pipewright::sim {

/// `figures` are those of `program`, in which `steady` was found; the result is what they are with
/// so many repetitions more. Throws InputError where a time does not fit into 64 bits, or the
/// activations of a rank not into 32.
Figures repeated(const Program& program, const CostTable& costs, const SteadyState& steady,
                 std::int64_t repetitions, Figures figures);

}  // namespace pipewright::sim
