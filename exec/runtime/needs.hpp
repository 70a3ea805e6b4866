// What an instruction of a rank waits for on its own rank, for readers that order streams by events
// instead of walking the list: exec/transports/nccl, exec/devices/cuda. A pure function.
#pragma once

#include <vector>

#include "core/program/program.hpp"

namespace pipewright::exec {

/// By instruction of the rank's list, in order: what has to have ended before it starts, on its
/// rank, whatever lane that is in: its inputs (docs/semantics.md §3), the run before it (§2), the
/// last instruction of the compute lane that is reached before it, and the transfer ends whose
/// places are taken until there (§2.2). What its own lane has before it is not repeated.
std::vector<std::vector<InstructionId>> needs_of(const Program& program, RankId rank);

}  // namespace pipewright::exec
