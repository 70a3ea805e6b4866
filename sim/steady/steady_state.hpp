// The steady state of a step: two moments of one run between which every rank, queue and message
// only moves on by whole periods of the order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::sim {

/// What comes again and again. A Program whose order has so many more micro-batches, put in in the
/// middle, ends `step_ns` later for each repetition, and each rank computes `busy_ns` more.
struct SteadyState {
  int micro_batches = 0;  // of one repetition
  std::int64_t step_ns = 0;
  std::int64_t instructions = 0;
  std::vector<std::int64_t> busy_ns;  // by rank
};

/// Why a steady state of this Program under this cost table is not looked for: something that takes
/// other times for other micro-batches, or a state that a Timeline does not show. "": it is.
std::string no_steady_state(const Program& program, const CostTable& costs);

/// `timeline` is that of the whole Program, `period` a number of micro-batches after which its
/// lists repeat in the middle (OrderMiddle and listing_period()). Compares the state at ends of one
/// of rank 0's computations: of each rank which instructions have ended and how long the others
/// have been under way; of messages, until they are there. What happens next follows from these and
/// the lists alone. Where two states are equal but for whole periods, so is all that follows, while
/// the lists repeat. nullopt: no two of these states are equal, or memory grows from one to the
/// other. O(instructions), then O(instructions under way) for each pair that is compared.
std::optional<SteadyState> find_steady_state(const Program& program, const CostTable& costs,
                                             const Timeline& timeline, int period);

}  // namespace pipewright::sim
