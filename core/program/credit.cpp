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
      const bool forward = route.send_kind == ActionKind::SendF;
      accounts_.back().whole = (forward ? program.policy.send_f : program.policy.send_b).credit;
    }
    account_of_route_.push_back(at->second);
  }
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const bool counts = is_send(program.code[id].kind) && is_finite(id) && may_be_eager(id);
    if (counts) accounts_[account_of(id)].sends.push_back(id);
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

const Protocol& Credit::protocol(InstructionId send) const {
  const bool forward = program_.code[send].kind == ActionKind::SendF;
  return forward ? program_.policy.send_f : program_.policy.send_b;
}

bool Credit::is_finite(InstructionId send) const {
  const Kind kind = protocol(send).kind;
  return kind == Kind::EagerMessages || kind == Kind::EagerBytes;
}

std::int64_t Credit::price(InstructionId send) const {
  const bool in_bytes = protocol(send).kind == Kind::EagerBytes;
  return in_bytes ? message_bytes_[program_.code[send].route] : 1;
}

bool Credit::may_be_eager(InstructionId send) const {
  if (program_.code[send].has(Instruction::kRendezvous)) return false;
  if (is_unlimited(send)) return true;
  return is_finite(send) && price(send) <= protocol(send).credit;
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
  if (is_finite(send)) accounts_[account_of(send)].free -= price(send);
}

void Credit::pass(InstructionId send) { started_[send] = 1; }

void Credit::give_back(InstructionId send) {
  if (is_finite(send)) accounts_[account_of(send)].free += price(send);
}

}  // namespace pipewright
