// Credit of eager sends (docs/semantics.md §4.3): counted per directed rank edge and per kind,
// taken strictly in program order. Not thread-safe: its owner guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

/// How a message leaves: when it meets its RECV, as soon as there is credit for it, or at once.
enum class Leave : std::uint8_t { Rendezvous, Counted, Unlimited };
/// What the policy says of a route's messages; a SEND with kRendezvous is none the less one.
Leave leave_by_policy(const CommPolicy& policy, ActionKind send_kind, std::int64_t bytes);

class Credit {
 public:
  using AccountId = std::uint32_t;

  /// `message_bytes` by route; copied.
  Credit(const Program& program, std::vector<std::int64_t> message_bytes);
  /// All credit is there, nothing has left.
  void reset();

  /// Whether the send could ever leave without its RECV.
  bool may_be_eager(InstructionId send) const { return leave_of(send) != Leave::Rendezvous; }
  bool is_unlimited(InstructionId send) const { return leave_of(send) == Leave::Unlimited; }
  AccountId account_of(InstructionId send) const {
    return account_of_route_[program_.code[send].route];
  }
  /// What the send takes, and the whole credit of its account; messages or bytes.
  std::int64_t price(InstructionId send) const;
  std::int64_t whole(InstructionId send) const { return accounts_[account_of(send)].whole; }

  /// The send that is next to take credit, if there is enough for it; else kNoInstruction. It is
  /// the first in program order that has neither left nor met its RECV, ready or not.
  InstructionId next(AccountId account);
  /// The send leaves and takes its price.
  void take(InstructionId send);
  /// The send has met its RECV and needs none.
  void pass(InstructionId send);
  /// The message was received.
  void give_back(InstructionId send);

 private:
  struct Account {
    std::vector<InstructionId> sends;  // that may be eager, in program order
    std::size_t first = 0;             // the first that has not started
    std::int64_t free = 0, whole = 0;  // messages or bytes
  };
  Leave leave_of(InstructionId send) const {
    const Instruction& in = program_.code[send];
    return in.has(Instruction::kRendezvous) ? Leave::Rendezvous : leave_of_route_[in.route];
  }
  const Protocol& protocol(ActionKind send_kind) const;

  const Program& program_;
  std::vector<std::int64_t> message_bytes_;
  std::vector<Account> accounts_;
  std::vector<AccountId> account_of_route_;
  std::vector<Leave> leave_of_route_;
  std::vector<std::uint8_t> started_;  // by instruction
};

}  // namespace pipewright
