// The steady state of a step: in each of its phases two moments of one run between which every
// rank, queue and message only moves on by whole periods of the order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/steady/order_middle.hpp"

namespace pipewright::sim {

/// Instructions of a rank that come again and again: [begin, end) of Program::code in the middle of
/// a phase, put in `times` times for each repetition.
struct RepeatedPart {
  InstructionId begin = 0, end = 0;
  std::int64_t times = 1;
};

/// What comes again and again. A Program whose order has so many more micro-batches, put in in the
/// middle of every phase, ends `step_ns` later for each repetition, each rank's last computation
/// `last_end_ns`, and each rank computes `busy_ns` more.
struct SteadyState {
  int micro_batches = 0;  // of one repetition
  std::int64_t step_ns = 0;
  std::int64_t instructions = 0;
  std::vector<std::int64_t> busy_ns, last_end_ns;  // by rank
  std::vector<std::vector<RepeatedPart>> parts;    // by phase and rank
};

/// Why a steady state of this Program under this cost table is not looked for: something that takes
/// other times for other micro-batches, or a state that a Timeline does not show. "": it is.
std::string no_steady_state(const Program& program, const CostTable& costs);

/// `timeline` is that of the whole Program, `phases` its own (middle_of()), whose periods are of so
/// many micro-batches. Compares the state at ends of one of rank 0's computations: of each rank
/// which instructions have ended and how long the others have been under way; of messages, until
/// they are there. What happens next follows from these and the lists alone. Where two states of a
/// phase are equal but for whole periods, so is all that follows, while the lists repeat. nullopt:
/// no two of these states are equal in some phase. O(instructions), then O(instructions under way)
/// for each pair that is compared.
std::optional<SteadyState> find_steady_state(const Program& program, const CostTable& costs,
                                             const Timeline& timeline,
                                             const std::vector<Phase>& phases, int micro_batches);

}  // namespace pipewright::sim
