// What an executor keeps of the transfer ends and members of collectives of some ranks: payloads,
// times, what has ended. What follows from what is TransferMachine's
// (core/program/transfer_machine.hpp). No thread, no lock: whoever owns it guards it; only
// has_ended() may be asked from any thread. Nanoseconds from the step's start.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

class TransferEnds {
 public:
  /// Of the instructions [begin, end); the Program must outlive it.
  TransferEnds(const Program& program, InstructionId begin, InstructionId end);
  /// Begins a step.
  void reset();

  /// A SEND without data gets them by provide(); a RECV and a member need none.
  void issue(InstructionId id, PayloadPtr data);
  void provide(InstructionId id, PayloadPtr data);
  /// For a call that is a part, which may wait for a RECV or for another call (docs/semantics.md
  /// §3.4), these have ended too. Collectives of replicas stand in one line with one another, and
  /// another transport may take some of them.
  bool has_data(InstructionId id) const;
  PayloadPtr& payload(InstructionId id) { return payload_[at(id)]; }

  void ready(InstructionId id, std::int64_t now) { start_[at(id)] = now; }
  /// Its message begins to move, or its collective to run.
  void moves(InstructionId id, std::int64_t now) { moving_[at(id)] = now; }
  std::int64_t moving_since(InstructionId id) const { return moving_[at(id)]; }
  void end(InstructionId id, std::int64_t now);
  bool has_ended(InstructionId id) const {
    return ended_[at(id)].load(std::memory_order_acquire) != 0;
  }

  /// Fills in the times and what has ended.
  void report(Timeline& timeline, Progress& progress) const;

 private:
  std::size_t at(InstructionId own) const { return own - begin_; }

  const Program& program_;
  const InstructionId begin_, end_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> ended_;  // from begin_, like what follows
  std::vector<std::uint8_t> has_data_;
  std::vector<PayloadPtr> payload_;
  std::vector<std::int64_t> start_, moving_, ended_at_;
};

}  // namespace pipewright::exec
