// A Program read without durations, whose lists may change while it is read: the state behind the
// cure by moving transfer ends. Not part of the public interface.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright::planner {

/// A head of a lane that waits for something behind another head.
struct HeadWait {
  InstructionId head = kNoInstruction;
  InstructionId waits_for = kNoInstruction;
  InstructionId behind = kNoInstruction;  // the head of the lane in which waits_for stands
};

class Reading {
 public:
  /// `program`: lists, lanes and policy. `partners`: by instruction, the other end of the same
  /// tensor.
  Reading(const Program& program, std::vector<InstructionId> partners, const CostTable& costs);

  /// Ends all that can end.
  void go_on();
  bool finished() const { return unfinished_ == 0; }
  /// A cycle of waits in a reading that stands still; empty if there is none.
  std::vector<HeadWait> cycle() const;
  /// The place of an instruction among all lists, one rank after the other.
  std::uint32_t place_of(InstructionId id) const { return place_[id]; }
  InstructionId at(std::uint32_t place) const { return list_[place]; }
  InstructionId partner_of(InstructionId id) const { return partners_[id]; }
  RankId rank_of(InstructionId id) const { return lanes_.rank_of_lane[lanes_.lane_of[id]]; }
  /// Whether the end may move to before `head` without overtaking what it needs: a RECV is the next
  /// of its edge, a SEND passes neither its producer nor another SEND of its edge.
  bool may_move(InstructionId end, InstructionId head) const;
  /// Whether the other end waits for it already.
  bool is_awaited(InstructionId end) const;
  void move(InstructionId end, InstructionId before);

 private:
  struct Edge {
    std::vector<InstructionId> sends;  // in program order
    std::size_t received = 0;
    std::int64_t credit_taken[2] = {0, 0};  // SEND_F, SEND_B
  };

  void find_edges();
  Edge& edge_of(InstructionId id) { return edges_[edge_of_route_[program_.code[id].route]]; }
  const Edge& edge_of(InstructionId id) const {
    return edges_[edge_of_route_[program_.code[id].route]];
  }
  InstructionId head_of(std::uint32_t lane) const;
  std::uint32_t compute_lane_of(InstructionId id) const {
    return lanes_.rank_lane_begin[static_cast<std::size_t>(rank_of(id).value)];
  }
  bool is_issued(InstructionId id) const;
  bool is_head(InstructionId id) const {
    return head_of(lanes_.lane_of[id]) == id && is_issued(id);
  }
  InstructionId first_unmet(InstructionId id) const;
  bool is_due(InstructionId receive) const;
  bool try_head(std::uint32_t lane);
  bool try_send(InstructionId send);
  bool try_receive(InstructionId receive);
  InstructionId missing_member(InstructionId member) const;
  bool try_collective(InstructionId member);
  bool leaves(InstructionId send);
  const Protocol& protocol_of(InstructionId send) const;
  std::int64_t amount_of(InstructionId send) const;
  void end(InstructionId id);
  InstructionId waits_for(InstructionId head) const;
  InstructionId transfer_waits_for(InstructionId end) const;
  InstructionId due_before(InstructionId receive) const;
  bool makes(InstructionId computation, InstructionId send) const;

  const Program& program_;
  std::vector<InstructionId> partners_;
  std::vector<std::int64_t> bytes_;  // by route
  LaneTable lanes_;                  // its lists follow the moves
  std::vector<std::uint32_t> next_;  // by lane, into lanes_.instructions
  std::vector<InstructionId> list_;
  std::vector<std::uint32_t> place_;
  std::vector<std::uint8_t> ended_, left_;
  std::vector<std::uint32_t> edge_of_route_;
  std::vector<Edge> edges_;
  std::size_t unfinished_ = 0;
};

}  // namespace pipewright::planner
