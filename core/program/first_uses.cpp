#include "core/program/first_uses.hpp"

#include <map>

namespace pipewright {
namespace {

/// A side of a directed rank edge: source, destination, whether it is the sending one.
struct Side {
  RankId source, destination;
  bool sends;

  auto operator<=>(const Side&) const = default;
};

Side side_of(const Program& program, InstructionId end) {
  const Instruction& in = program.code[end];
  const Route& route = program.routes[in.route];
  return {route.source, route.destination, is_send(in.kind)};
}

/// By side, its first end.
std::map<Side, InstructionId> first_ends(const Program& program) {
  std::map<Side, InstructionId> first;
  for (int r = 0; r < program.ranks(); ++r) {
    for (const InstructionId id : issue_order(program, RankId(r))) {
      if (is_transfer(program.code[id].kind)) first.try_emplace(side_of(program, id), id);
    }
  }
  return first;
}

}  // namespace

std::vector<FirstUse> first_uses(const Program& program) {
  std::vector<FirstUse> uses;
  if (program.policy.connect != Connect::FirstUse || program.joined.empty()) return uses;
  const std::map<Side, InstructionId> first = first_ends(program);
  std::map<std::uint32_t, FirstUse> by_batch;
  for (const auto& [id, batch] : program.joined) {
    FirstUse& use = by_batch[batch];
    use.batch = batch;
    use.ends.push_back(id);
    Side side = side_of(program, id);
    if (first.at(side) != id) continue;
    side.sends = !side.sends;
    const auto other = first.find(side);
    use.connections.emplace_back(id, other == first.end() ? kNoInstruction : other->second);
  }
  for (auto& [batch, use] : by_batch) {
    if (!use.connections.empty()) uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace pipewright
