// Credit of eager sends (docs/semantics.md §4.3): counted per directed rank edge and per kind, taken in program order.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program.hpp"

namespace pipewright::sim {

class Credit {
 public:
  /// `route_bytes`: message size by route; must outlive this.
  Credit(const Program& program, const std::vector<std::int64_t>& route_bytes);

  /// Takes credit for a ready send if there is some and nobody waits before it. Always false under rendezvous.
  bool take(InstructionId send);
  /// The send found none and stays ready (no effect under rendezvous).
  void wait(InstructionId send);
  /// It met its RECV instead.
  void stop_waiting(InstructionId send);
  /// The message of `send` was received.
  void give_back(InstructionId send);
  /// The first send that waits on the edge and kind of `like` and now has credit, which it takes; kNoInstruction if none.
  InstructionId next_to_leave(InstructionId like);

 private:
  struct Account {
    std::int64_t left = 0;               // messages or bytes
    std::vector<InstructionId> waiting;  // in program order
  };
  const Protocol& protocol(InstructionId send) const;
  Account& account(InstructionId send) { return accounts_[account_of_route_[program_.code[send].route]]; }
  std::int64_t price(InstructionId send) const;

  const Program& program_;
  const std::vector<std::int64_t>& route_bytes_;
  std::vector<Account> accounts_;
  std::vector<std::uint32_t> account_of_route_;
};

}  // namespace pipewright::sim
