// Who makes what a transfer carries, and who uses it: the computations at the two far ends of each
// transfer of a Program. Plain data; build it once for a Program.
#pragma once

#include <vector>

#include "core/program/program.hpp"

namespace pipewright::traces {

struct TensorEnds {
  /// By instruction, for transfer ends (else kNoInstruction): the computation on the sender's rank
  /// that makes the tensor, and the one on the receiver's rank that uses it. kNoInstruction where
  /// the Program does not hold it. Both ends of a transfer have the same two entries.
  std::vector<InstructionId> producer;
  std::vector<InstructionId> consumer;
};

/// O(n log n) in the instructions of a rank.
TensorEnds tensor_ends_of(const Program& program);

}  // namespace pipewright::traces
