// The collectives of a Program: the REDUCE_GRADs of replicas that belong together
// (docs/semantics.md §3.2). Plain data; pure function.
#pragma once

#include <vector>

#include "core/program.hpp"

namespace pipewright {

struct Collective {
  struct Member {
    RankId rank;
    InstructionId instruction = kNoInstruction;
    /// The last computation before it in its list: what the other members wait for.
    /// kNoInstruction: it is the first.
    InstructionId before = kNoInstruction;
  };
  StageId stage;
  std::vector<Member> members;  // two or more, by rank
};

/// By stage, then turn. O(instructions).
std::vector<Collective> collectives_of(const Program& program);

}  // namespace pipewright
