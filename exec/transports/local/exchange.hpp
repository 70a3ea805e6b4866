// The transfers of one step between the threads of a process: TransferMachine
// (core/program/transfer_machine.hpp) with payloads and the time that messages take, driven by
// issue(), provide() and the passing of time. It has no thread and no lock: LocalTransport guards
// it. Only has_ended() may be asked at any time from any thread. Times are nanoseconds from the
// step's start and never go back.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/transfer_machine.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/transfer_ends.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::local {

/// What a message costs, by route. Times of 0 hand a message over as fast as the machine can.
struct MessageCosts {
  std::vector<std::int64_t> transfer_ns, bytes;
  std::vector<std::int64_t> collective_ns = {};  // by collective; empty: 0

  std::int64_t of_collective(std::uint32_t index) const {
    return collective_ns.empty() ? 0 : collective_ns[index];
  }
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
  /// TransferMachine::meet_one().
  bool settle(std::int64_t now);

  bool has_ended(InstructionId id) const { return ends_.has_ended(id); }
  PayloadPtr take(InstructionId recv) { return std::move(ends_.payload(recv)); }
  /// Transfer ends and members of collectives that ended since the last call.
  std::vector<InstructionId> take_just_ended();

  void report(Timeline& timeline, Progress& progress) const;

 private:
  friend TransferMachine<Exchange>;
  struct Event {
    std::int64_t time;
    InstructionId send;  // or the first member of a collective
    bool operator>(const Event& o) const { return time != o.time ? time > o.time : send > o.send; }
  };

  std::int64_t transfer_ns(InstructionId send) const {
    return costs_.transfer_ns[program_.code[send].route];
  }
  void message_ended(InstructionId send);

  // What the machine asks and tells.
  bool has_data(InstructionId id) const { return ends_.has_data(id); }
  bool takes_no_time(InstructionId send) const { return transfer_ns(send) == 0; }
  void on_ready(InstructionId id) { ends_.ready(id, now_); }
  void start_message(InstructionId send, bool eager);
  void start_collective(std::uint32_t index);
  void on_ended(InstructionId id);
  void tell(TransferSignal, InstructionId, RankId) {}  // it holds all ends

  const Program& program_;
  MessageCosts costs_;
  TransferEnds ends_;
  TransferMachine<Exchange> machine_;
  std::int64_t now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<InstructionId> just_ended_;
};

}  // namespace pipewright::exec::local
