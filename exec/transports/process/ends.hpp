// The transfer ends of one rank: TransferMachine (core/program/transfer_machine.hpp) with
// payloads and the time that messages take. What it tells the machines of other ranks, and the
// messages themselves, go as frames:
//   Ready   TransferSignal::ReceiveReady
//   Data    the message itself; says whether it took credit
//   Credit  TransferSignal::CreditBack
//   Member  TransferSignal::MemberReady
// Driven from outside by what the rank does and what arrives. No thread, no lock: the transport
// guards it; only has_ended() may be asked from any thread. Nanoseconds from the step's start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/transfer_machine.hpp"
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
  PayloadPtr data = nullptr;    // of Data
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

  void on_data(InstructionId send, PayloadPtr data, bool took_credit, std::int64_t moving_ns,
               std::int64_t now);
  /// `id`: the SEND, or another rank's member of a collective.
  void on_signal(TransferSignal signal, InstructionId id, std::int64_t now);
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
  void report(Timeline& timeline, Progress& progress) const;

 private:
  friend TransferMachine<Ends>;
  struct Event {
    std::int64_t time;
    InstructionId id;  // a SEND or a member that ends, or a RECV whose message arrives
    bool took_credit;  // of a RECV
    bool operator>(const Event& o) const { return time != o.time ? time > o.time : id > o.id; }
  };

  std::int64_t transfer_ns(InstructionId send) const {
    return costs_.transfer_ns[program_.code[send].route];
  }
  void pass_to(std::int64_t now) { now_ = std::max(now_, now); }

  // What the machine asks and tells.
  bool has_data(InstructionId id) const { return ends_.has_data(id); }
  bool takes_no_time(InstructionId) const { return true; }  // real time has no instants to wait for
  void on_ready(InstructionId id) { ends_.ready(id, now_); }
  void start_message(InstructionId send, bool eager);
  void start_collective(std::uint32_t index);
  void on_ended(InstructionId id);
  void tell(TransferSignal signal, InstructionId id, RankId to);

  const Program& program_;
  const InstructionId begin_, end_;
  local::MessageCosts costs_;
  TransferEnds ends_;
  TransferMachine<Ends> machine_;
  std::int64_t now_ = 0;
  std::uint64_t ended_count_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace pipewright::exec::mpi
