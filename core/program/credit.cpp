#include "core/program/credit.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pipewright {
namespace {

const Protocol& protocol_of(const CommPolicy& policy, ActionKind send_kind) {
  return send_kind == ActionKind::SendB ? policy.send_b : policy.send_f;
}

}  // namespace

/// A message larger than the whole credit is always a rendezvous.
Leave leave_by_policy(const CommPolicy& policy, ActionKind send_kind, std::int64_t bytes) {
  const Protocol& protocol = protocol_of(policy, send_kind);
  switch (protocol.kind) {
    case Protocol::Kind::Rendezvous:
      return Leave::Rendezvous;
    case Protocol::Kind::EagerUnlimited:
      return Leave::Unlimited;
    case Protocol::Kind::EagerMessages:
      return 1 <= protocol.credit ? Leave::Counted : Leave::Rendezvous;
    case Protocol::Kind::EagerBytes:
      return bytes <= protocol.credit ? Leave::Counted : Leave::Rendezvous;
  }
  return Leave::Rendezvous;
}

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
  for (std::size_t r = 0; r < program.routes.size(); ++r) {
    // Who counts in messages may give no bytes.
    const std::int64_t bytes = r < message_bytes_.size() ? message_bytes_[r] : 0;
    leave_of_route_.push_back(leave_by_policy(program.policy, program.routes[r].send_kind, bytes));
  }
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_send(program.code[id].kind) && leave_of(id) == Leave::Counted)
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
  return protocol_of(program_.policy, send_kind);
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
  if (leave_of(send) == Leave::Counted) accounts_[account_of(send)].free -= price(send);
}

void Credit::pass(InstructionId send) { started_[send] = 1; }

void Credit::give_back(InstructionId send) {
  if (leave_of(send) == Leave::Counted) accounts_[account_of(send)].free += price(send);
}

}  // namespace pipewright
