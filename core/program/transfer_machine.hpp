// The rules of transfers and collectives (docs/semantics.md §2.1, §2.4, §3.2, §4) as a state
// machine: which end stands ready at the head of its queue, which SEND leaves or meets its RECV,
// what ends when a message arrives, when a collective starts. It has no clock, no thread and no
// I/O: a driver says what happens and is told what follows. The simulator drives it by events,
// threads under a lock, processes by frames, `check --fix` without time.
//
// It holds the transfer ends of all ranks or those of one. What one end has to know of another
// (TransferSignal) it is told at once where the machine holds both; otherwise the driver carries
// it. Ends on a compute lane are issued when the rank stands there, so their lanes need no queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/program/credit.hpp"
#include "core/program/first_uses.hpp"
#include "core/program/program.hpp"

namespace pipewright {

enum class TransferSignal : std::uint8_t {
  ReceiveReady,  // to a SEND: its RECV stands ready (told unless the SEND needs no leave to go)
  CreditBack,    // to a SEND that took credit: its message was received
  MemberReady,   // to the other members of a collective: this one stands ready
};

/// The Driver has these, and lets the machine call them:
///   bool has_data(id)         what the SEND or the member carries is there; may a RECV be ready
///   bool takes_no_time(send)  a rendezvous for want of credit begins without waiting for
///                             meet_one(), for it cannot outlast the instant
///   void on_ready(id)         it stands ready
///   void start_message(send, eager)   answered by arrived(), and by sent() unless it is eager
///   void start_collective(index)      answered by collective_ended()
///   void on_ended(id)
///   void tell(TransferSignal, id, rank)   to the machine of that rank; id: the SEND or the member
template <class Driver>
class TransferMachine {
 public:
  /// For the instructions [begin, end), whole ranks. `message_bytes` by route. The Program and the
  /// driver must outlive it.
  TransferMachine(const Program& program, std::vector<std::int64_t> message_bytes,
                  InstructionId begin, InstructionId end, Driver& driver)
      : program_(program),
        begin_(begin),
        end_(end),
        driver_(driver),
        lanes_(lane_table(program)),
        credit_(program, std::move(message_bytes)),
        first_uses_(first_uses(program)) {
    if (!program.joined.empty()) batch_.assign(program.code.size(), kNoBatch);
    for (const auto& [id, batch] : program.joined) batch_[id] = batch;
    reset();
  }
  /// For all ranks.
  TransferMachine(const Program& program, std::vector<std::int64_t> message_bytes, Driver& driver)
      : TransferMachine(program, std::move(message_bytes), 0,
                        static_cast<InstructionId>(program.code.size()), driver) {}

  /// Nothing has been issued.
  void reset() {
    state_.assign(end_ - begin_, 0);
    next_.assign(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1);
    members_ready_.assign(program_.collectives.size(), 0);
    unconnected_.assign(batch_.empty() ? 0 : batch_count(), 0);
    for (const FirstUse& use : first_uses_) unconnected_[use.batch] = 1;
    to_connect_ = first_uses_.size();
    credit_.reset();
    lanes_to_try_.clear();
    ends_to_try_.clear();
    accounts_to_serve_.clear();
    quick_meetings_.clear();
    meetings_.clear();
  }

  // What happens. Each is followed by run().

  void issue(InstructionId id) {
    mark(id, kIssued);
    look_at(id);
  }
  /// has_data() may have become true.
  void look_at(InstructionId id) {
    if (code(id).has(Instruction::kOnComputeLane)) {
      ends_to_try_.push_back(id);
    } else {
      look_at_lane(lanes_.lane_of[id]);
    }
  }
  /// The same of all that stand in the queues of a rank.
  void look_at_queues(RankId rank) {
    const std::uint32_t* lanes = &lanes_.rank_lane_begin[static_cast<std::size_t>(rank.value)];
    for (std::uint32_t lane = lanes[0] + 1; lane < lanes[1]; ++lane) look_at_lane(lane);
  }
  void arrived(InstructionId recv, bool took_credit) {
    mark(recv, took_credit ? kArrived | kTookCredit : kArrived);
    if (is(recv, kReady) && true_partner(recv) != kNoInstruction) end_receive(recv);
  }
  /// The message of a rendezvous is out of the sender's hands.
  void sent(InstructionId send) { end(send); }
  /// Both of these, where the machine holds both ends.
  void message_ended(InstructionId send) {
    if (!has_left(send)) sent(send);
    if (code(send).link != kNoInstruction) arrived(code(send).link, took_credit(send));
  }
  void collective_ended(std::uint32_t index) {
    for (const Collective::Member& member : program_.collectives[index].members) {
      if (holds(member.instruction)) end(member.instruction);
    }
  }
  void signalled(TransferSignal signal, InstructionId id) {
    switch (signal) {
      case TransferSignal::ReceiveReady:
        mark(id, kPartnerReady);
        if (is(id, kReady) && !has_started(id)) meet(id);
        return;
      case TransferSignal::CreditBack:
        credit_.give_back(id);
        accounts_to_serve_.push_back(credit_.account_of(id));
        return;
      case TransferSignal::MemberReady:
        const std::uint32_t collective = code(id).route;
        const Collective& all = program_.collectives[collective];
        if (++members_ready_[collective] == all.members.size() && all.can_start())
          driver_.start_collective(collective);
        return;
    }
  }

  /// Lets everything follow. Credit before everything else, meetings without credit after it.
  void run() {
    while (true) {
      if (!accounts_to_serve_.empty()) {
        serve(take_last(accounts_to_serve_));
      } else if (!ends_to_try_.empty()) {
        try_end(take_last(ends_to_try_));
      } else if (!lanes_to_try_.empty()) {
        try_lane(take_last(lanes_to_try_));
      } else if (!(to_connect_ > 0 && connect()) &&
                 (quick_meetings_.empty() || !meet_first_of(quick_meetings_))) {
        return;
      }
    }
  }
  /// Nothing else can happen at this instant: lets one SEND that got no credit meet its RECV, the
  /// first in program order, and what follows. False if there is none. (Credit that comes back at
  /// the same instant is taken first, §4.3.)
  bool meet_one() {
    if (meetings_.empty() || !meet_first_of(meetings_)) return false;
    run();
    return true;
  }

  // For lists that change while they are read (planner/fix).

  /// Puts an end that waits in its queue before another one there. If that stood ready, it does no
  /// more.
  void move_before(InstructionId end, InstructionId other) {
    const auto lane = lanes_.instructions.begin();
    const std::uint32_t head = next_[lanes_.lane_of[end]];
    if (lanes_.instructions[head] == other) withdraw(other);
    const auto to = std::find(lane + head, lanes_.instructions.end(), other);
    const auto from = std::find(to, lanes_.instructions.end(), end);
    std::rotate(to, from, from + 1);
    look_at(end);
  }
  /// It stands ready no more; where it is on a compute lane, it is to be issued again.
  void withdraw(InstructionId id) {
    unmark(id, code(id).has(Instruction::kOnComputeLane) ? kReady | kIssued : kReady);
    const InstructionId send = is_recv(code(id).kind) ? true_partner(id) : kNoInstruction;
    if (send != kNoInstruction) unmark(send, kPartnerReady);
  }

  // What is so.

  bool holds(InstructionId id) const { return begin_ <= id && id < end_; }
  bool is_issued(InstructionId id) const { return is(id, kIssued); }
  bool has_left(InstructionId send) const { return is(send, kLeft); }
  bool has_ended(InstructionId id) const { return is(id, kEnded); }
  /// Of a SEND that has left.
  bool took_credit(InstructionId send) const {
    return has_left(send) && !credit_.is_unlimited(send);
  }
  const LaneTable& lanes() const { return lanes_; }
  /// Of a queue: the first that has not ended, or kNoInstruction.
  InstructionId head_of(std::uint32_t lane) const {
    return next_[lane] < lanes_.lane_begin[lane + 1] ? lanes_.instructions[next_[lane]]
                                                     : kNoInstruction;
  }
  /// Behind the end at this place of its lane, or behind the joined batch that begins there (§2.4).
  std::uint32_t operation_end(std::uint32_t lane, std::uint32_t place) const {
    if (batch_.empty()) return place + 1;
    const std::uint32_t batch = batch_[lanes_.instructions[place]];
    if (batch == kNoBatch) return place + 1;
    while (place < lanes_.lane_begin[lane + 1] && batch_[lanes_.instructions[place]] == batch)
      ++place;
    return place;
  }

 private:
  // Bits of an end's state.
  static constexpr std::uint8_t kIssued = 1, kReady = 2, kEnded = 4;
  // Of a SEND: it has left eagerly, or is in a rendezvous; its RECV is ready.
  static constexpr std::uint8_t kLeft = 8, kMeets = 16, kPartnerReady = 32;
  // Of a RECV: its message is here, and took credit.
  static constexpr std::uint8_t kArrived = 64, kTookCredit = 128;

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  bool is(InstructionId id, std::uint8_t bits) const { return (state_[id - begin_] & bits) != 0; }
  void mark(InstructionId id, std::uint8_t bits) { state_[id - begin_] |= bits; }
  void unmark(InstructionId id, int bits) {
    state_[id - begin_] = static_cast<std::uint8_t>(state_[id - begin_] & ~bits);
  }
  bool has_started(InstructionId send) const { return is(send, kLeft | kMeets); }
  /// Its partner, if the two are for the same tensor.
  InstructionId true_partner(InstructionId id) const {
    return code(id).has(Instruction::kMismatch) ? kNoInstruction : code(id).link;
  }

  template <class T>
  static T take_last(std::vector<T>& values) {
    const T last = values.back();
    values.pop_back();
    return last;
  }

  // --- Queues ---

  void look_at_lane(std::uint32_t lane) { lanes_to_try_.push_back(lane); }

  /// Of a joined batch each end that can be ready is.
  void try_lane(std::uint32_t lane) {
    if (next_[lane] == lanes_.lane_begin[lane + 1]) return;
    const std::uint32_t stop = operation_end(lane, next_[lane]);
    for (std::uint32_t place = next_[lane]; place < stop; ++place)
      try_end(lanes_.instructions[place]);
  }

  void try_end(InstructionId id) {
    if (!is(id, kIssued) || is(id, kReady) || !driver_.has_data(id)) return;
    if (to_connect_ > 0 && is_unconnected(id)) return;
    mark(id, kReady);
    driver_.on_ready(id);
    if (code(id).in_collective()) {
      member_ready(id);
    } else if (is_send(code(id).kind)) {
      send_ready(id);
    } else {
      receive_ready(id);
    }
  }

  void end(InstructionId id) {
    mark(id, kEnded);
    driver_.on_ended(id);
    if (code(id).has(Instruction::kOnComputeLane)) return;
    const std::uint32_t lane = lanes_.lane_of[id];
    const std::uint32_t stop = operation_end(lane, next_[lane]);
    for (std::uint32_t place = next_[lane]; place < stop; ++place) {
      if (!has_ended(lanes_.instructions[place])) return;
    }
    next_[lane] = stop;
    if (stop < lanes_.lane_begin[lane + 1]) look_at_lane(lane);
  }

  // --- Connections made at their first use by joined batches ---

  std::size_t batch_count() const {
    std::uint32_t count = 0;
    for (const auto& [id, batch] : program_.joined) count = std::max(count, batch + 1);
    return count;
  }

  bool stands(InstructionId id) const {
    if (has_ended(id)) return true;
    if (!is(id, kIssued) || code(id).has(Instruction::kOnComputeLane)) return is(id, kIssued);
    const std::uint32_t lane = lanes_.lane_of[id];
    const std::uint32_t stop = operation_end(lane, next_[lane]);
    for (std::uint32_t place = next_[lane]; place < stop; ++place) {
      if (lanes_.instructions[place] == id) return true;
    }
    return false;
  }

  bool is_unconnected(InstructionId id) const {
    return batch_[id] != kNoBatch && unconnected_[batch_[id]] != 0;
  }

  /// Lets those go on that connect now; false if there are none.
  bool connect() {
    const auto connects = connected(first_uses_, [this](InstructionId id) { return stands(id); });
    bool some = false;
    for (std::size_t u = 0; u < first_uses_.size(); ++u) {
      std::uint8_t& unconnected = unconnected_[first_uses_[u].batch];
      if (connects[u] == 0 || unconnected == 0) continue;
      unconnected = 0;
      --to_connect_;
      some = true;
      for (const InstructionId id : first_uses_[u].ends) look_at(id);
    }
    return some;
  }

  // --- Transfers ---

  void send_ready(InstructionId send) {
    if (credit_.is_unlimited(send)) return leave(send);
    if (credit_.may_be_eager(send)) accounts_to_serve_.push_back(credit_.account_of(send));
    if (is(send, kPartnerReady)) meet(send);
  }

  void receive_ready(InstructionId recv) {
    const InstructionId send = true_partner(recv);
    if (send == kNoInstruction) return;
    if (is(recv, kArrived)) return end_receive(recv);
    if (!credit_.is_unlimited(send)) signal(TransferSignal::ReceiveReady, send);
  }

  /// Sends that have credit now leave, the first in program order first.
  void serve(Credit::AccountId account) {
    for (InstructionId send = credit_.next(account);
         send != kNoInstruction && holds(send) && is(send, kReady); send = credit_.next(account))
      leave(send);
  }

  void leave(InstructionId send) {
    mark(send, kLeft);
    credit_.take(send);
    end(send);
    driver_.start_message(send, true);
  }

  /// Both stand ready.
  void meet(InstructionId send) {
    if (!credit_.may_be_eager(send)) return begin_rendezvous(send);
    (driver_.takes_no_time(send) ? quick_meetings_ : meetings_).push_back(send);
  }

  bool meet_first_of(std::vector<InstructionId>& meetings) {
    std::erase_if(meetings, [&](InstructionId send) { return has_started(send); });
    if (meetings.empty()) return false;
    const auto first = std::min_element(meetings.begin(), meetings.end());
    const InstructionId send = *first;
    meetings.erase(first);
    begin_rendezvous(send);
    return true;
  }

  void begin_rendezvous(InstructionId send) {
    mark(send, kMeets);
    if (credit_.may_be_eager(send)) {
      credit_.pass(send);
      accounts_to_serve_.push_back(credit_.account_of(send));
    }
    driver_.start_message(send, false);
  }

  void end_receive(InstructionId recv) {
    end(recv);
    if (is(recv, kTookCredit)) signal(TransferSignal::CreditBack, code(recv).link);
  }

  // --- Collectives ---

  void member_ready(InstructionId id) {
    for (const Collective::Member& member : program_.collectives[code(id).route].members) {
      if (!holds(member.instruction)) driver_.tell(TransferSignal::MemberReady, id, member.rank);
    }
    signalled(TransferSignal::MemberReady, id);
  }

  void signal(TransferSignal signal, InstructionId send) {
    holds(send) ? signalled(signal, send) : driver_.tell(signal, send, program_.rank_of(send));
  }

  const Program& program_;
  const InstructionId begin_, end_;
  Driver& driver_;
  LaneTable lanes_;
  Credit credit_;
  std::vector<std::uint8_t> state_;         // from begin_
  std::vector<std::uint32_t> next_;         // by lane: place of its head in lanes_.instructions
  std::vector<std::uint32_t> batch_;        // by instruction; empty: none is joined
  std::vector<std::size_t> members_ready_;  // by collective
  std::vector<FirstUse> first_uses_;
  std::vector<std::uint8_t> unconnected_;  // by joined batch
  std::size_t to_connect_ = 0;             // of first_uses_
  // What is still to be done.
  std::vector<std::uint32_t> lanes_to_try_;
  std::vector<InstructionId> ends_to_try_;  // on compute lanes
  std::vector<Credit::AccountId> accounts_to_serve_;
  std::vector<InstructionId> quick_meetings_, meetings_;  // for want of credit
};

}  // namespace pipewright
