// The transfers of one step as a state machine: queues, matching, rendezvous, credit and arrival
// (docs/semantics.md §2.1, §4), driven from outside by issue(), provide() and the passing of time.
// It has no thread and no lock: LocalTransport guards it. Only has_ended() may be asked at any time
// from any thread. Times are nanoseconds from the step's start and never go back.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "core/program/credit.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transfer_ends.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::local {

/// What a message costs, by route. Times of 0 hand a message over as fast as the machine can.
struct MessageCosts {
  std::vector<std::int64_t> transfer_ns, bytes;
  std::vector<std::int64_t> collective_ns = {};  // by collective; empty: 0
};

class Exchange {
 public:
  /// The Program must outlive it.
  Exchange(const Program& program, MessageCosts costs);
  /// Begins a step.
  void reset();

  void issue(InstructionId end, PayloadPtr data, std::int64_t now);
  void provide(InstructionId send, PayloadPtr data, std::int64_t now);

  /// When the next message arrives or transfer ends; nullopt if none is under way.
  std::optional<std::int64_t> next_event() const;
  /// Lets everything happen that is due at `until` or before, in the order of time.
  void run_events(std::int64_t until);
  /// Nothing else can happen at this instant: lets one send that got no credit meet its RECV. False
  /// if there is none. (Credit that comes back at the same instant is taken first, §4.3.)
  bool settle(std::int64_t now);

  bool has_ended(InstructionId id) const { return ends_.has_ended(id); }
  PayloadPtr take(InstructionId recv) { return std::move(ends_.payload(recv)); }
  /// Transfer ends and members of collectives that ended since the last call.
  std::vector<InstructionId> take_just_ended();

  void report(Timeline& timeline, Progress& progress) const { ends_.report(timeline, progress); }

 private:
  // Bits of an end's state.
  static constexpr std::uint16_t kReady = TransferEnds::kReady, kLeft = TransferEnds::kLeft,
                                 kMoving = TransferEnds::kMoving, kArrived = TransferEnds::kFree;
  struct Event {
    std::int64_t time;
    InstructionId send;  // or the first member of a collective
    bool operator>(const Event& o) const { return time != o.time ? time > o.time : send > o.send; }
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  std::int64_t transfer_ns(InstructionId send) const {
    return costs_.transfer_ns[code(send).route];
  }

  void drain();
  void become_ready(InstructionId id);
  void try_to_meet(InstructionId send);
  void leave(InstructionId send);
  void arrive(InstructionId send);
  void begin_rendezvous(InstructionId send);
  void end_rendezvous(InstructionId send);
  void end_receive(InstructionId recv);
  void member_ready(InstructionId id);
  void end_collective(const Collective& collective);
  void serve(Credit::AccountId account);
  void end(InstructionId id);

  const Program& program_;
  MessageCosts costs_;
  Credit credit_;
  TransferEnds ends_;
  std::int64_t now_ = 0;

  std::vector<std::size_t> members_ready_;  // by collective
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<InstructionId> just_ended_;
  // Work that the present call has still to do, so that a long chain is no deep recursion.
  std::vector<Credit::AccountId> accounts_to_serve_;
  std::vector<InstructionId> quick_meetings_;  // meetings for want of credit that take no time
  std::vector<InstructionId> meetings_;        // and those that wait for settle()
};

}  // namespace pipewright::exec::local
