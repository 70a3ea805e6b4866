// Credit of eager sends (docs/semantics.md §4.3): counted per directed rank edge and per kind,
// taken strictly in program order. sim and exec keep the same accounts. Not thread-safe: its owner
// guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

class Credit {
 public:
  using AccountId = std::uint32_t;

  /// `message_bytes` by route; copied.
  Credit(const Program& program, std::vector<std::int64_t> message_bytes);
  /// All credit is there, nothing has left.
  void reset();

  /// Whether the send could ever leave without its RECV.
  bool may_be_eager(InstructionId send) const;
  bool is_unlimited(InstructionId send) const {
    return protocol(send).kind == Kind::EagerUnlimited &&
           !program_.code[send].has(Instruction::kRendezvous);
  }
  AccountId account_of(InstructionId send) const {
    return account_of_route_[program_.code[send].route];
  }

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
  using Kind = Protocol::Kind;
  struct Account {
    std::vector<InstructionId> sends;  // that may be eager, in program order
    std::size_t first = 0;             // the first that has not started
    std::int64_t free = 0, whole = 0;  // messages or bytes
  };
  const Protocol& protocol(InstructionId send) const;
  std::int64_t price(InstructionId send) const;
  bool is_finite(InstructionId send) const;

  const Program& program_;
  std::vector<std::int64_t> message_bytes_;
  std::vector<Account> accounts_;
  std::vector<AccountId> account_of_route_;
  std::vector<std::uint8_t> started_;  // by instruction
};

}  // namespace pipewright
