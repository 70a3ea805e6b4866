// The least of the shortest cycles of waits (docs/semantics.md §7.1).
#pragma once

#include <cstddef>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

struct HeadWait {
  InstructionId waits_for = kNoInstruction;
  std::size_t behind = 0;                  // index of a head
  InstructionId waiting = kNoInstruction;  // the head, or an end of its joined batch
};
using HeadWaits = std::vector<std::vector<HeadWait>>;  // by head, in the order of rank and lane

/// As indices of heads; empty if there is none.
std::vector<std::size_t> shortest_cycle(const HeadWaits& waits);

}  // namespace pipewright
