// What an instruction waits for on its own rank before it may start or be issued (docs/semantics.md
// §2.2, §3). Everybody who reads a Program asks here: the simulator, ranks that run, and the report
// of what stands still.
#pragma once

#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

/// Calls visit(input) for each instruction whose result `id` needs, until one returns false; false
/// then. They are: of a computation the RECV that brings its data, of a wait what it waits for, and
/// what of its own rank stands later. A transfer's partner is none.
template <class Visit>
bool for_each_datum(const Program& program, InstructionId id, Visit&& visit) {
  const Instruction& in = program.code[id];
  if (!is_transfer(in.kind) && in.link != kNoInstruction && !visit(in.link)) return false;
  if (in.has(Instruction::kExtraInput)) {
    for (const auto& [self, input] : program.extra_inputs_of(id)) {
      if (!visit(input)) return false;
    }
  }
  return true;
}

/// The same for all that has to end before `id` may start: under grouped issue the transfers right
/// before it, too. `rank_begin`: the first instruction of its rank.
template <class Visit>
bool for_each_input(const Program& program, InstructionId id, InstructionId rank_begin,
                    Visit&& visit) {
  if (!for_each_datum(program, id, visit)) return false;
  if (!program.code[id].has(Instruction::kJoinsRun)) return true;
  for (; id > rank_begin && is_transfer(program.code[id - 1].kind); --id) {
    if (!visit(id - 1)) return false;
  }
  return true;
}

/// Where the policy limits what is in flight: by instruction of the rank, from its first, the
/// transfer end whose place it takes, which has to end before it is issued (§2.2); kNoInstruction
/// for what needs none. Empty without a limit.
std::vector<InstructionId> places_in_flight(const Program& program, RankId rank);

}  // namespace pipewright
