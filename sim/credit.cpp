#include "sim/credit.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pipewright::sim {
namespace {

bool is_finite(const Protocol& p) { return p.kind == Protocol::Kind::EagerMessages || p.kind == Protocol::Kind::EagerBytes; }

}  // namespace

Credit::Credit(const Program& program, const std::vector<std::int64_t>& route_bytes) : program_(program), route_bytes_(route_bytes) {
  std::map<std::tuple<ActionKind, RankId, RankId>, std::uint32_t> known;
  for (const Route& route : program.routes) {
    const auto [at, added] = known.try_emplace({route.send_kind, route.source, route.destination}, static_cast<std::uint32_t>(accounts_.size()));
    if (added) {
      const Protocol& p = route.send_kind == ActionKind::SendF ? program.policy.send_f : program.policy.send_b;
      accounts_.push_back({.left = p.credit, .waiting = {}});
    }
    account_of_route_.push_back(at->second);
  }
}

const Protocol& Credit::protocol(InstructionId send) const {
  return program_.code[send].kind == ActionKind::SendF ? program_.policy.send_f : program_.policy.send_b;
}

std::int64_t Credit::price(InstructionId send) const {
  return protocol(send).kind == Protocol::Kind::EagerBytes ? route_bytes_[program_.code[send].route] : 1;
}

bool Credit::take(InstructionId send) {
  const Protocol& p = protocol(send);
  if (p.kind == Protocol::Kind::EagerUnlimited) return true;
  if (!is_finite(p)) return false;
  Account& a = account(send);
  const std::int64_t amount = price(send);
  if (amount > p.credit || !a.waiting.empty() || a.left < amount) return false;
  a.left -= amount;
  return true;
}

void Credit::wait(InstructionId send) {
  const Protocol& p = protocol(send);
  if (!is_finite(p) || price(send) > p.credit) return;
  auto& waiting = account(send).waiting;
  waiting.insert(std::upper_bound(waiting.begin(), waiting.end(), send), send);
}

void Credit::stop_waiting(InstructionId send) { std::erase(account(send).waiting, send); }

void Credit::give_back(InstructionId send) {
  if (is_finite(protocol(send))) account(send).left += price(send);
}

InstructionId Credit::next_to_leave(InstructionId like) {
  if (!is_finite(protocol(like))) return kNoInstruction;
  Account& a = account(like);
  if (a.waiting.empty()) return kNoInstruction;
  const InstructionId send = a.waiting.front();
  if (a.left < price(send)) return kNoInstruction;
  a.left -= price(send);
  a.waiting.erase(a.waiting.begin());
  return send;
}

}  // namespace pipewright::sim
