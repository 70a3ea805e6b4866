// The ranks of a Program walk their lists, and their transfers follow: TransferMachine for all
// ranks together with their compute lanes (docs/semantics.md §2, §3). Like it, it knows no clock: a
// driver says when computations, messages and collectives end. Who walks on threads of its own does
// the same one rank at a time (exec/runtime/rank.hpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/start_rules.hpp"
#include "core/program/transfer_machine.hpp"

namespace pipewright {

/// The Driver has these, and lets the walk call them:
///   bool takes_no_time(send)       see TransferMachine
///   bool has_ended(id)             on_ended(id) was called
///   void on_ready(id)              a transfer end or member stands ready
///   void on_ended(id)
///   void start_computation(id)     answered by computation_ended()
///   void start_message(send)       answered by message_ended()
///   void start_collective(index)   answered by collective_ended()
template <class Driver>
class ProgramWalk {
 public:
  /// `message_bytes` by route. The Program and the driver must outlive it.
  ProgramWalk(const Program& program, std::vector<std::int64_t> message_bytes, Driver& driver)
      : program_(program), driver_(driver), transfers_(program, std::move(message_bytes), *this) {
    for (const auto& [id, input] : program.extra_inputs)
      queues_wait_for_data_ |= !program.code[id].has(Instruction::kOnComputeLane);
    for (int r = 0; r < program.ranks(); ++r) {
      const std::uint32_t lane = compute_lane(static_cast<std::size_t>(r));
      ranks_.push_back({.head = lanes().lane_begin[lane], .end = lanes().lane_begin[lane + 1]});
      ranks_.back().places = places_in_flight(program, RankId(r));
      if (!ranks_.back().places.empty()) ranks_.back().to_issue = issue_order(program, RankId(r));
    }
  }

  /// The step begins. Followed by go_on(), like what happens later.
  void begin() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (InstructionId id = begin_of(r); id < begin_of(r + 1); ++id) {
        if (!code(id).has(Instruction::kAtStart)) continue;
        if (ranks_[r].places.empty()) {
          issue(id);
        } else {
          ++ranks_[r].reached;
        }
      }
      reach(r, begin_of(r));
    }
    for (std::size_t r = ranks_.size(); r-- > 0;) ranks_to_try_.push_back(r);  // rank 0 goes first
  }

  void computation_ended(InstructionId id) {
    const std::size_t rank = rank_of(id);
    ranks_[rank].computes = false;
    driver_.on_ended(id);
    ranks_to_try_.push_back(rank);
    if (queues_wait_for_data_) transfers_.look_at_queues(RankId(static_cast<std::int64_t>(rank)));
  }
  void message_ended(InstructionId send) { transfers_.message_ended(send); }
  void collective_ended(std::uint32_t index) { transfers_.collective_ended(index); }

  /// Everything that follows at this instant.
  void go_on() {
    while (true) {
      transfers_.run();
      if (ranks_to_try_.empty()) return;
      const std::size_t rank = ranks_to_try_.back();
      ranks_to_try_.pop_back();
      walk(rank);
    }
  }
  /// TransferMachine::meet_one(), and everything that follows.
  bool meet_one() {
    if (!transfers_.meet_one()) return false;
    go_on();
    return true;
  }

  bool has_left(InstructionId send) const { return transfers_.has_left(send); }

 private:
  friend TransferMachine<ProgramWalk>;
  struct Rank {
    std::uint32_t head = 0, end = 0;  // of the compute lane: places in LaneTable::instructions
    bool computes = false;            // its head does
    // Where the policy limits what is in flight:
    std::vector<InstructionId> to_issue = {};  // issue_order()
    std::vector<InstructionId> places = {};    // places_in_flight()
    std::size_t reached = 0, issued = 0;       // of to_issue
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  const LaneTable& lanes() const { return transfers_.lanes(); }
  InstructionId begin_of(std::size_t rank) const { return program_.rank_begin[rank]; }
  std::uint32_t compute_lane(std::size_t rank) const { return lanes().rank_lane_begin[rank]; }
  std::size_t rank_of(InstructionId id) const {
    return static_cast<std::size_t>(lanes().rank_of_lane[lanes().lane_of[id]].value);
  }

  // --- Issue ---

  /// The compute lane has come to `id`: issues the transfer ends up to its next instruction.
  void reach(std::size_t rank, InstructionId id) {
    Rank& own = ranks_[rank];
    for (; id < begin_of(rank + 1) && !code(id).has(Instruction::kOnComputeLane); ++id) {
      if (own.places.empty()) {
        issue(id);
      } else {
        own.reached += !code(id).has(Instruction::kAtStart);
      }
    }
    issue_reached(rank);
  }

  /// As far as there is room (§2.2).
  void issue_reached(std::size_t rank) {
    Rank& own = ranks_[rank];
    for (; own.issued < own.reached; ++own.issued) {
      const InstructionId next = own.to_issue[own.issued];
      const InstructionId place = own.places[next - begin_of(rank)];
      if (place != kNoInstruction && !driver_.has_ended(place)) return;
      issue(next);
    }
  }

  void issue(InstructionId id) {
    if (transfers_.is_issued(id) || code(id).has(Instruction::kNotPassed)) return;
    transfers_.issue(id);
  }

  // --- The compute lane ---

  /// Lets its head start if it can, and goes on while heads end at once.
  void walk(std::size_t rank) {
    Rank& own = ranks_[rank];
    issue_reached(rank);
    if (own.computes) return;
    const std::uint32_t lane = compute_lane(rank);
    while (own.head < own.end) {
      const std::uint32_t stop = transfers_.operation_end(lane, own.head);
      bool ended = true;
      for (std::uint32_t place = own.head; place < stop; ++place) {
        const InstructionId id = lanes().instructions[place];
        if (driver_.has_ended(id)) continue;
        ended = false;
        if (own.issued == own.reached) start(own, begin_of(rank), id);
      }
      if (!ended) return;
      own.head = stop;
      reach(rank, lanes().instructions[stop - 1] + 1);
    }
  }

  void start(Rank& own, InstructionId begin, InstructionId id) {
    if (transfers_.is_issued(id) || code(id).has(Instruction::kNotPassed)) return;
    if (!inputs_there(id, begin)) return;
    if (code(id).is_communication()) return transfers_.issue(id);
    own.computes = true;
    driver_.start_computation(id);
  }

  bool inputs_there(InstructionId id, InstructionId begin) const {
    return for_each_input(program_, id, begin,
                          [&](InstructionId input) { return driver_.has_ended(input); });
  }

  // --- What the transfers ask and tell ---

  bool has_data(InstructionId id) const {
    const Instruction& in = code(id);
    if (in.has(Instruction::kOnComputeLane)) return true;  // start() has looked
    const bool needs_none = is_transfer(in.kind) && !in.has(Instruction::kExtraInput);
    return needs_none || inputs_there(id, begin_of(rank_of(id)));
  }
  bool takes_no_time(InstructionId send) const { return driver_.takes_no_time(send); }
  void on_ready(InstructionId id) { driver_.on_ready(id); }
  void start_message(InstructionId send, bool) { driver_.start_message(send); }
  void start_collective(std::uint32_t index) { driver_.start_collective(index); }
  void on_ended(InstructionId id) {
    driver_.on_ended(id);
    const std::size_t rank = rank_of(id);
    // A call that is a part may wait for a RECV, or for a call in another line.
    if (!program_.part_of.empty())
      transfers_.look_at_queues(RankId(static_cast<std::int64_t>(rank)));
    if (!ranks_[rank].computes || !ranks_[rank].places.empty()) ranks_to_try_.push_back(rank);
  }
  void tell(TransferSignal, InstructionId, RankId) {}  // it holds all ends

  const Program& program_;
  Driver& driver_;
  TransferMachine<ProgramWalk> transfers_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> ranks_to_try_;  // whose compute lane may go on
  bool queues_wait_for_data_ = false;
};

}  // namespace pipewright
