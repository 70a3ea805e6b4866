#include "core/program/credit.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pipewright {

Credit::Credit(const Program& program, std::vector<std::int64_t> message_bytes)
    : program_(program), message_bytes_(std::move(message_bytes)) {
  std::map<std::tuple<ActionKind, RankId, RankId>, AccountId> known;
  for (const Route& route : program.routes) {
    const auto [at, added] = known.try_emplace({route.send_kind, route.source, route.destination},
                                               static_cast<AccountId>(accounts_.size()));
    if (added) {
      accounts_.emplace_back();
      accounts_.back().whole = protocol(route.send_kind).credit;
    }
    account_of_route_.push_back(at->second);
  }
  for (std::size_t r = 0; r < program.routes.size(); ++r)
    way_of_route_.push_back(way_by_policy(program.routes[r], r));
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_send(program.code[id].kind) && way_of(id) == Way::Counted)
      accounts_[account_of(id)].sends.push_back(id);
  }
  reset();
}

void Credit::reset() {
  started_.assign(program_.code.size(), 0);
  for (Account& account : accounts_) {
    account.first = 0;
    account.free = account.whole;
  }
}

const Protocol& Credit::protocol(ActionKind send_kind) const {
  return send_kind == ActionKind::SendB ? program_.policy.send_b : program_.policy.send_f;
}

/// A message larger than the whole credit is always a rendezvous.
Credit::Way Credit::way_by_policy(const Route& route, std::size_t index) const {
  const Protocol& protocol = this->protocol(route.send_kind);
  switch (protocol.kind) {
    case Protocol::Kind::Rendezvous:
      return Way::Rendezvous;
    case Protocol::Kind::EagerUnlimited:
      return Way::Unlimited;
    case Protocol::Kind::EagerMessages:
      return 1 <= protocol.credit ? Way::Counted : Way::Rendezvous;
    case Protocol::Kind::EagerBytes:
      return message_bytes_[index] <= protocol.credit ? Way::Counted : Way::Rendezvous;
  }
  return Way::Rendezvous;
}

std::int64_t Credit::price(InstructionId send) const {
  const bool in_bytes = protocol(program_.code[send].kind).kind == Protocol::Kind::EagerBytes;
  return in_bytes ? message_bytes_[program_.code[send].route] : 1;
}

InstructionId Credit::next(AccountId account) {
  Account& a = accounts_[account];
  while (a.first < a.sends.size() && started_[a.sends[a.first]] != 0) ++a.first;
  if (a.first == a.sends.size()) return kNoInstruction;
  const InstructionId send = a.sends[a.first];
  return price(send) <= a.free ? send : kNoInstruction;
}

void Credit::take(InstructionId send) {
  started_[send] = 1;
  if (way_of(send) == Way::Counted) accounts_[account_of(send)].free -= price(send);
}

void Credit::pass(InstructionId send) { started_[send] = 1; }

void Credit::give_back(InstructionId send) {
  if (way_of(send) == Way::Counted) accounts_[account_of(send)].free += price(send);
}

}  // namespace pipewright
