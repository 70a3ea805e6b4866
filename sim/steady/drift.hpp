// Phases in which the ranks drift apart: where nothing waits for anything but its data, a rank that
// is faster than the one behind it gets further and further ahead, and no state comes back. Times
// are then linear in the place in the phase and in its length.
#pragma once

#include <optional>
#include <vector>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/steady/order_middle.hpp"
#include "sim/steady/steady_state.hpp"

namespace pipewright::sim {

/// A Program and when it ran.
struct RanProgram {
  const Program& program;
  const Timeline& timeline;
};

/// `longer` has one period more, of so many micro-batches, in each of the phases of `shorter`
/// (middle_of()). Every instruction ends when the last of its inputs lets it. So where all of them
/// end later by something linear, and for each the input that decided goes on to decide, because no
/// other one grows faster, that is how all go on, whatever the length. Looks at every instruction
/// and input of `shorter` for that. nullopt: it is not so yet, or the policy lets something wait
/// for more than its data.
std::optional<SteadyState> find_drift(const RanProgram& shorter, const RanProgram& longer,
                                      const std::vector<Phase>& phases, int micro_batches);

}  // namespace pipewright::sim
