#include "core/program/first_uses.hpp"

namespace pipewright {

EdgeSide side_of(const Program& program, InstructionId end) {
  const Instruction& in = program.code[end];
  const Route& route = program.routes[in.route];
  return {route.source, route.destination, is_send(in.kind)};
}

std::map<EdgeSide, InstructionId> first_ends(const Program& program) {
  std::map<EdgeSide, InstructionId> first;
  for (int r = 0; r < program.ranks(); ++r) {
    for (const InstructionId id : issue_order(program, RankId(r))) {
      if (is_transfer(program.code[id].kind)) first.try_emplace(side_of(program, id), id);
    }
  }
  return first;
}

std::vector<FirstUse> first_uses(const Program& program) {
  std::vector<FirstUse> uses;
  if (program.policy.connect != Connect::FirstUse || program.joined.empty()) return uses;
  const std::map<EdgeSide, InstructionId> first = first_ends(program);
  std::map<std::uint32_t, FirstUse> by_batch;
  for (const auto& [id, batch] : program.joined) {
    FirstUse& use = by_batch[batch];
    use.batch = batch;
    use.ends.push_back(id);
    const EdgeSide side = side_of(program, id);
    if (first.at(side) != id) continue;
    const auto other = first.find(other_side(side));
    use.connections.emplace_back(id, other == first.end() ? kNoInstruction : other->second);
  }
  for (auto& [batch, use] : by_batch) {
    if (!use.connections.empty()) uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace pipewright
