// A Program read without durations, whose lists may change while it is read: the state behind the
// fix by moving transfer ends. Not part of the public interface.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/program/start_rules.hpp"
#include "core/program/transfer_machine.hpp"

namespace pipewright::planner {

/// A head of a lane that waits for something behind another head.
struct HeadWait {
  InstructionId head = kNoInstruction;
  InstructionId waits_for = kNoInstruction;
  InstructionId behind = kNoInstruction;  // the head of the lane in which waits_for stands
};

class UntimedWalk {
 public:
  /// `program`: lists, lanes and policy. `partners`: by instruction, the other end of the same
  /// tensor.
  UntimedWalk(const Program& program, const std::vector<InstructionId>& partners,
              const CostTable& costs);

  /// Ends all that can end.
  void go_on();
  bool finished() const { return unfinished_ == 0; }
  /// A cycle of waits where nothing goes on; empty if there is none.
  std::vector<HeadWait> cycle() const;
  /// The place of an instruction among all lists, one rank after the other.
  std::uint32_t place_of(InstructionId id) const { return place_[id]; }
  InstructionId at(std::uint32_t place) const { return list_[place]; }
  RankId rank_of(InstructionId id) const { return lanes().rank_of_lane[lanes().lane_of[id]]; }
  /// Whether the end may move to before `head` without overtaking what it needs: a RECV is the next
  /// of its edge, a SEND passes neither its producer nor another SEND of its edge.
  bool may_move(InstructionId end, InstructionId head) const;
  /// Whether the other end waits for it already.
  bool is_awaited(InstructionId end) const;
  void move(InstructionId end, InstructionId before);

 private:
  friend TransferMachine<UntimedWalk>;
  /// The receives of a directed pair of ranks come in the order of its sends.
  struct Edge {
    std::vector<InstructionId> sends;  // in program order
    std::size_t received = 0;
  };

  void find_edges();
  Edge& edge_of(InstructionId id) { return edges_[edge_of_route_[code(id).route]]; }
  const Edge& edge_of(InstructionId id) const { return edges_[edge_of_route_[code(id).route]]; }
  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  const LaneTable& lanes() const { return transfers_.lanes(); }
  std::size_t rank_index(InstructionId id) const {
    return static_cast<std::size_t>(rank_of(id).value);
  }
  InstructionId compute_head(std::size_t rank) const;
  InstructionId head_of(std::uint32_t lane) const;
  std::uint32_t compute_lane_of(InstructionId id) const {
    return lanes().rank_lane_begin[rank_index(id)];
  }
  bool is_issued(InstructionId id) const;
  bool is_head(InstructionId id) const {
    return head_of(lanes().lane_of[id]) == id && is_issued(id);
  }
  InstructionId first_unmet(InstructionId id) const;
  bool is_due(InstructionId receive) const;
  void walk(std::size_t rank);
  InstructionId missing_member(InstructionId member) const;
  InstructionId waits_for(InstructionId head) const;
  InstructionId transfer_waits_for(InstructionId end) const;
  InstructionId due_before(InstructionId receive) const;
  bool makes(InstructionId computation, InstructionId send) const;

  // What the transfers ask and tell.
  bool has_data(InstructionId id) const {
    return is_recv(code(id).kind) ? is_due(id) : first_unmet(id) == kNoInstruction;
  }
  bool takes_no_time(InstructionId) const { return true; }
  void on_ready(InstructionId) {}
  void on_ended(InstructionId id);
  void start_message(InstructionId send, bool) { transfers_.message_ended(send); }
  void start_collective(std::uint32_t index) { transfers_.collective_ended(index); }
  void tell(TransferSignal, InstructionId, RankId) {}  // it holds all ends

  const Program program_;  // its transfers meet by tensor
  TransferMachine<UntimedWalk> transfers_;
  std::vector<InstructionId> list_;
  std::vector<std::uint32_t> place_;
  std::vector<std::uint32_t> at_;  // by rank: the place of its compute lane's head
  std::vector<std::uint8_t> ended_;
  std::vector<std::uint32_t> edge_of_route_;
  std::vector<Edge> edges_;
  std::size_t unfinished_ = 0;
};

}  // namespace pipewright::planner
