#include "planner/fix/untimed_walk.hpp"

#include <algorithm>
#include <numeric>

namespace pipewright::planner {
namespace {

Program meeting_by(Program program, const std::vector<InstructionId>& partners) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    Instruction& in = program.code[id];
    if (!is_transfer(in.kind)) continue;
    in.link = partners[id];
    in.flags &= static_cast<std::uint8_t>(~Instruction::kMismatch);
  }
  return program;
}

}  // namespace

UntimedWalk::UntimedWalk(const Program& program, const std::vector<InstructionId>& partners,
                         const CostTable& costs)
    : program_(meeting_by(program, partners)),
      transfers_(program_, costs.message_bytes(program), *this),
      list_(program.code.size()),
      place_(program.code.size()),
      at_(program.rank_begin.begin(), program.rank_begin.end() - 1),
      ended_(program.code.size(), 0),
      unfinished_(program.code.size()) {
  std::iota(list_.begin(), list_.end(), InstructionId{0});
  std::iota(place_.begin(), place_.end(), std::uint32_t{0});
  find_edges();
}

void UntimedWalk::find_edges() {
  const auto& routes = program_.routes;
  const auto same = [](const Route& a, const Route& b) {
    return a.source == b.source && a.destination == b.destination;
  };
  std::vector<std::uint32_t> by_edge(routes.size());
  std::iota(by_edge.begin(), by_edge.end(), std::uint32_t{0});
  std::sort(by_edge.begin(), by_edge.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (routes[a].source != routes[b].source) return routes[a].source < routes[b].source;
    if (routes[a].destination != routes[b].destination)
      return routes[a].destination < routes[b].destination;
    return a < b;
  });
  edge_of_route_.resize(routes.size());
  for (std::size_t k = 0; k < by_edge.size(); ++k) {
    if (k == 0 || !same(routes[by_edge[k - 1]], routes[by_edge[k]])) edges_.emplace_back();
    edge_of_route_[by_edge[k]] = static_cast<std::uint32_t>(edges_.size() - 1);
  }
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    if (is_send(code(id).kind)) edge_of(id).sends.push_back(id);
  }
}

/// What the rank's compute lane stands at; kNoInstruction: its list is at its end.
InstructionId UntimedWalk::compute_head(std::size_t rank) const {
  return at_[rank] < program_.rank_begin[rank + 1] ? list_[at_[rank]] : kNoInstruction;
}

InstructionId UntimedWalk::head_of(std::uint32_t lane) const {
  const auto rank = static_cast<std::size_t>(lanes().rank_of_lane[lane].value);
  return lane == lanes().rank_lane_begin[rank] ? compute_head(rank) : transfers_.head_of(lane);
}

bool UntimedWalk::is_issued(InstructionId id) const {
  return code(id).has(Instruction::kOnComputeLane) || place_[id] < at_[rank_index(id)];
}

InstructionId UntimedWalk::first_unmet(InstructionId id) const {
  InstructionId unmet = kNoInstruction;
  for_each_datum(program_, id, [&](InstructionId input) {
    if (ended_[input] == 0) unmet = input;
    return unmet == kNoInstruction;
  });
  if (unmet != kNoInstruction) return unmet;
  if (is_transfer(code(id).kind) || program_.policy.issue != Issue::Grouped) return kNoInstruction;
  const auto begin = program_.rank_begin[rank_index(id)];
  for (std::uint32_t at = place_[id]; at-- > begin;) {  // the run before it
    if (!is_transfer(code(list_[at]).kind)) break;
    if (ended_[list_[at]] == 0) return list_[at];
  }
  return kNoInstruction;
}

/// Whether the edge's order of sends allows this RECV to be the next.
bool UntimedWalk::is_due(InstructionId receive) const {
  const InstructionId send = code(receive).link;
  if (send == kNoInstruction) return false;
  const Edge& edge = edge_of(send);
  return edge.received < edge.sends.size() && edge.sends[edge.received] == send;
}

void UntimedWalk::on_ended(InstructionId id) {
  ended_[id] = 1;
  --unfinished_;
  if (!is_recv(code(id).kind)) return;
  Edge& edge = edge_of(code(id).link);
  if (++edge.received == edge.sends.size()) return;
  const InstructionId next = code(edge.sends[edge.received]).link;
  if (next != kNoInstruction) transfers_.look_at(next);
}

void UntimedWalk::walk(std::size_t rank) {
  for (InstructionId id = compute_head(rank); id != kNoInstruction; id = compute_head(rank)) {
    const Instruction& in = code(id);
    const bool on_lane = in.has(Instruction::kOnComputeLane);
    if (on_lane && first_unmet(id) != kNoInstruction) return;
    if (!in.is_communication()) {
      on_ended(id);
      transfers_.look_at_queues(rank_of(id));
    } else if (!transfers_.is_issued(id)) {
      transfers_.issue(id);
    }
    transfers_.run();
    if (on_lane && ended_[id] == 0) return;
    ++at_[rank];
  }
}

/// The first member, by rank, that is not ready; kNoInstruction: all are.
InstructionId UntimedWalk::missing_member(InstructionId member) const {
  for (const auto& other : program_.collectives[code(member).route].members) {
    const bool ready =
        is_head(other.instruction) && first_unmet(other.instruction) == kNoInstruction;
    if (!ready) return other.instruction;
  }
  return kNoInstruction;
}

void UntimedWalk::go_on() {
  transfers_.run();
  for (std::size_t before = unfinished_ + 1; before != unfinished_;) {
    before = unfinished_;
    for (std::size_t rank = 0; rank < at_.size(); ++rank) walk(rank);
  }
}

InstructionId UntimedWalk::transfer_waits_for(InstructionId end) const {
  const InstructionId other = code(end).link;
  if (is_recv(code(end).kind)) return other;
  const Edge& edge = edge_of(end);  // the oldest message gives credit back first
  for (std::size_t k = edge.received; k < edge.sends.size() && transfers_.has_left(edge.sends[k]);
       ++k) {
    if (code(edge.sends[k]).kind == code(end).kind) return code(edge.sends[k]).link;
  }
  return other;
}

/// The RECV that has to end before this one can, as the edge's order of sends has it; itself if it
/// is due.
InstructionId UntimedWalk::due_before(InstructionId receive) const {
  const InstructionId send = code(receive).link;
  if (send == kNoInstruction || is_due(receive)) return receive;
  const Edge& edge = edge_of(send);
  return edge.received < edge.sends.size() ? code(edge.sends[edge.received]).link : kNoInstruction;
}

InstructionId UntimedWalk::waits_for(InstructionId head) const {
  if (is_recv(code(head).kind) && !is_due(head)) {
    const InstructionId first = due_before(head);
    return first == head ? kNoInstruction : first;
  }
  InstructionId wanted = first_unmet(head);
  if (wanted == kNoInstruction && is_transfer(code(head).kind)) wanted = transfer_waits_for(head);
  if (wanted == kNoInstruction && code(head).in_collective()) wanted = missing_member(head);
  if (wanted != kNoInstruction && is_recv(code(wanted).kind)) return due_before(wanted);
  return wanted;
}

std::vector<HeadWait> UntimedWalk::cycle() const {
  constexpr std::uint32_t kUnseen = 0;
  std::vector<std::uint32_t> seen(lanes().count(), kUnseen);  // the path that came by first
  std::vector<HeadWait> path;
  for (std::uint32_t start = 0; start < lanes().count(); ++start) {
    path.clear();
    for (std::uint32_t lane = start;;) {
      const InstructionId head = head_of(lane);
      if (head == kNoInstruction || !is_issued(head)) break;
      if (seen[lane] == start + 1) {
        const auto first = std::find_if(path.begin(), path.end(),
                                        [&](const HeadWait& w) { return w.head == head; });
        return {first, path.end()};
      }
      if (seen[lane] != kUnseen) break;
      seen[lane] = start + 1;
      const InstructionId wanted = waits_for(head);
      if (wanted == kNoInstruction || ended_[wanted] != 0) break;
      lane = is_issued(wanted) ? lanes().lane_of[wanted] : compute_lane_of(wanted);
      path.push_back({head, wanted, head_of(lane)});
    }
  }
  return {};
}

/// Whether the computation produces what the SEND carries.
bool UntimedWalk::makes(InstructionId computation, InstructionId send) const {
  const Instruction& wanted = code(send);
  const auto is_maker = [&](const Action& a) {
    const bool kind = wanted.kind == ActionKind::SendF
                          ? a.kind == ActionKind::F
                          : a.kind == ActionKind::I || a.kind == ActionKind::B;
    return kind && a.stage.value == wanted.stage &&
           a.micro_batch.value == static_cast<std::int32_t>(wanted.micro_batch);
  };
  const Cell cell = program_.cell(computation);
  return is_maker(cell.action) || (cell.partner && is_maker(*cell.partner));
}

bool UntimedWalk::may_move(InstructionId end, InstructionId head) const {
  if (place_[head] >= place_[end]) return false;
  if (is_recv(code(end).kind)) return is_due(end);
  for (std::uint32_t at = place_[head]; at < place_[end]; ++at) {
    const Instruction& in = code(list_[at]);
    const bool same_edge =
        is_send(in.kind) && edge_of_route_[in.route] == edge_of_route_[code(end).route];
    if (same_edge || (!is_transfer(in.kind) && makes(list_[at], end))) return false;
  }
  return first_unmet(end) == kNoInstruction;
}

bool UntimedWalk::is_awaited(InstructionId end) const {
  const InstructionId other = code(end).link;
  if (other == kNoInstruction) return false;
  if (is_recv(code(end).kind)) {
    return transfers_.has_left(other) || (is_head(other) && first_unmet(other) == kNoInstruction);
  }
  return is_head(other) && is_due(other);
}

void UntimedWalk::move(InstructionId end, InstructionId before) {
  const std::uint32_t from = place_[end], to = place_[before];
  const auto first = list_.begin();
  std::rotate(first + to, first + from, first + from + 1);
  for (std::uint32_t at = to; at <= from; ++at) place_[list_[at]] = at;
  std::uint32_t& head = at_[rank_index(end)];
  if (code(end).has(Instruction::kOnComputeLane)) {
    if (transfers_.is_issued(before)) transfers_.withdraw(before);
    return;
  }
  const auto queue = lanes().instructions_of(lanes().lane_of[end]);
  const auto later = std::find_if(queue.begin(), queue.end(), [&](InstructionId one) {
    return ended_[one] == 0 && place_[one] > to;
  });
  if (later != queue.end() && place_[*later] <= from) transfers_.move_before(end, *later);
  if (from < head) return;
  ++head;  // it stands in front of that now, and has been reached
  transfers_.issue(end);
}

}  // namespace pipewright::planner
