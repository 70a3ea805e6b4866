// The transfer ends of one rank as a state machine: its queues, its half of rendezvous and of
// credit (docs/semantics.md §2.1, §4). exec/transports/local/exchange.hpp has both halves of every
// transfer in one place; here the halves are told apart, and what one has to know of the other goes
// as a frame:
//   Ready   the RECV of a SEND stands ready (told unless the SEND needs no leave to go)
//   Data    the message itself; says whether it took credit
//   Credit  the message was received and gives its credit back
//   Member  a member of a collective stands ready; the last one starts it (§3.2)
// Driven from outside by what the rank does and what arrives. No thread, no lock: the transport
// guards it; only has_ended() may be asked from any thread. Nanoseconds from the step's start.
#pragma once

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "core/program/credit.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transfer_ends.hpp"
#include "exec/runtime/transport.hpp"
#include "exec/transports/local/exchange.hpp"
#include "exec/transports/process/frame.hpp"

namespace pipewright::exec::mpi {

/// What the rank has to tell another one.
struct Outgoing {
  FrameKind kind = FrameKind::Ready;
  InstructionId send = kNoInstruction;  // the transfer, by its SEND; or the member
  RankId to;
  PayloadPtr data;              // of Data
  bool took_credit = false;     // of Data
  std::int64_t moving_ns = 0;   // of Data: when it began to move
  bool ends_when_sent = false;  // of Data: the SEND ends when on_sent() is called
};

class Ends {
 public:
  /// The Program must outlive it.
  Ends(const Program& program, RankId rank, local::MessageCosts costs);
  /// Begins a step.
  void reset();

  // What the rank does.

  void issue(InstructionId end, PayloadPtr data, std::int64_t now);
  void provide(InstructionId send, PayloadPtr data, std::int64_t now);
  PayloadPtr take(InstructionId recv) { return std::move(ends_.payload(recv)); }

  // What arrives, by the transfer's SEND.

  void on_ready(InstructionId send, std::int64_t now);
  void on_data(InstructionId send, PayloadPtr data, bool took_credit, std::int64_t moving_ns,
               std::int64_t now);
  void on_credit(InstructionId send, std::int64_t now);
  /// Another rank's member of a collective stands ready.
  void on_member(InstructionId member, std::int64_t now);
  /// The Data of a rendezvous is out of our hands.
  void on_sent(InstructionId send, std::int64_t now);

  /// Messages that take time by the cost table: lets happen what is due.
  void run_events(std::int64_t now);
  bool has_events() const { return !events_.empty(); }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// Own transfer ends and members that have ended since the beginning.
  std::uint64_t ended_count() const { return ended_count_; }
  bool has_ended(InstructionId end) const { return ends_.has_ended(end); }
  /// Fills in this rank's transfer ends.
  void report(Timeline& timeline, Progress& progress) const { ends_.report(timeline, progress); }

 private:
  // Bits of an end's state.
  static constexpr std::uint16_t kReady = TransferEnds::kReady, kLeft = TransferEnds::kLeft,
                                 kMoving = TransferEnds::kMoving,
                                 kPeerReady = TransferEnds::kFree,  // of a SEND: its RECV is ready
      kArrived = 2 * TransferEnds::kFree,     // of a RECV: its message is here
      kTookCredit = 4 * TransferEnds::kFree;  // of a RECV: that message took credit
  struct Event {
    std::int64_t time;
    InstructionId id;  // a SEND or a member that ends, or a RECV whose message arrives
    bool operator>(const Event& o) const { return time != o.time ? time > o.time : id > o.id; }
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  std::int64_t transfer_ns(InstructionId send) const {
    return costs_.transfer_ns[code(send).route];
  }

  void drain();
  void become_ready(InstructionId id);
  void serve(Credit::AccountId account);
  void leave(InstructionId send);
  void meet_without_credit();
  void begin_rendezvous(InstructionId send);
  void arrive(InstructionId recv);
  void end_receive(InstructionId recv);
  void member_ready(InstructionId member);
  void tell(FrameKind kind, InstructionId send, RankId to);
  void end(InstructionId id);

  const Program& program_;
  const InstructionId begin_, end_;
  local::MessageCosts costs_;
  Credit credit_;
  TransferEnds ends_;
  std::int64_t now_ = 0;
  std::uint64_t ended_count_ = 0;

  std::vector<std::size_t> members_ready_;  // by collective
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Outgoing> outgoing_;
  // Work that the present call has still to do.
  std::vector<Credit::AccountId> accounts_to_serve_;
  std::vector<InstructionId> meetings_;  // sends without credit whose RECV stands ready
};

}  // namespace pipewright::exec::mpi
