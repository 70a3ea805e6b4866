#include "core/program/start_rules.hpp"

namespace pipewright {

std::vector<InstructionId> places_in_flight(const Program& program, RankId rank) {
  std::vector<InstructionId> places;
  if (program.policy.in_flight <= 0 || program.policy.issue != Issue::Stream) return places;
  const auto window = static_cast<std::size_t>(program.policy.in_flight);
  const InstructionId begin = program.rank_begin[static_cast<std::size_t>(rank.value)];
  places.assign(program.rank_code(rank).size(), kNoInstruction);
  std::vector<InstructionId> transfers;
  for (const InstructionId id : issue_order(program, rank)) {
    if (!is_transfer(program.code[id].kind)) continue;
    if (transfers.size() >= window) places[id - begin] = transfers[transfers.size() - window];
    transfers.push_back(id);
  }
  return places;
}

}  // namespace pipewright
