// The transfer ends and members of collectives of some ranks, and the lanes they stand in
// (docs/semantics.md §2.1): which have been issued, have their data, stand ready at the head of
// their lane, have ended, and when. What the state machines of transfers share; how two ends meet
// is theirs (exec/transports/local/exchange.hpp, exec/transports/process/ends.hpp). No thread, no
// lock: whoever owns it guards it; only has_ended() may be asked from any thread. Nanoseconds from
// the step's start.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

class TransferEnds {
 public:
  // Bits of an end's state; the owner may use those from kFree on as it likes.
  static constexpr std::uint16_t kIssued = 1, kData = 2, kReady = 4, kLeft = 8, kMoving = 16,
                                 kFree = 32;

  /// Of the instructions [begin, end); the Program must outlive it.
  TransferEnds(const Program& program, InstructionId begin, InstructionId end);
  /// Begins a step.
  void reset();

  void issue(InstructionId end, PayloadPtr data);
  void provide(InstructionId send, PayloadPtr data);
  /// One that has come to stand ready: it is marked so, and its start is now. kNoInstruction: none.
  InstructionId next_ready(std::int64_t now);
  /// It has ended; the next in its lane comes to the head.
  void end(InstructionId id, std::int64_t now);

  bool is(InstructionId id, std::uint16_t bits) const { return (state_[at(id)] & bits) == bits; }
  bool has_started(InstructionId id) const { return (state_[at(id)] & (kLeft | kMoving)) != 0; }
  bool has_ended(InstructionId id) const {
    return ended_[at(id)].load(std::memory_order_acquire) != 0;
  }
  void mark(InstructionId id, std::uint16_t bits) { state_[at(id)] |= bits; }
  PayloadPtr& payload(InstructionId id) { return payload_[at(id)]; }
  /// When its message began to move, or its collective to run.
  std::int64_t& moving(InstructionId id) { return moving_[at(id)]; }

  bool holds(InstructionId id) const { return begin_ <= id && id < end_; }
  std::uint32_t lane_of(InstructionId id) const { return lanes_.lane_of[id]; }
  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  /// Its partner, if the two are for the same tensor.
  InstructionId true_partner(InstructionId id) const {
    return code(id).has(Instruction::kMismatch) ? kNoInstruction : code(id).link;
  }

  /// Fills in what is known of them.
  void report(Timeline& timeline, Progress& progress) const;

 private:
  std::size_t at(InstructionId own) const { return own - begin_; }
  void look_at(InstructionId id);

  const Program& program_;
  const InstructionId begin_, end_;
  const LaneTable lanes_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> ended_;  // by own instruction, like what follows
  std::vector<std::uint16_t> state_;
  std::vector<PayloadPtr> payload_;
  std::vector<std::int64_t> start_, moving_, ended_at_;
  std::vector<std::uint32_t> next_;  // by lane: place of its head in lanes_.instructions
  // What may have come to stand ready: lanes whose head to look at, and ends of compute lanes.
  std::vector<std::uint32_t> lanes_to_try_;
  std::vector<InstructionId> on_compute_lanes_;
};

}  // namespace pipewright::exec
