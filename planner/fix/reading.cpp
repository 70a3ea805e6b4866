#include "planner/fix/reading.hpp"

#include <algorithm>
#include <numeric>

namespace pipewright::planner {

Reading::Reading(const Program& program, std::vector<InstructionId> partners,
                 const CostTable& costs)
    : program_(program),
      partners_(std::move(partners)),
      bytes_(costs.message_bytes(program)),
      lanes_(lane_table(program)),
      next_(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1),
      list_(program.code.size()),
      place_(program.code.size()),
      ended_(program.code.size(), 0),
      left_(program.code.size(), 0),
      unfinished_(program.code.size()) {
  std::iota(list_.begin(), list_.end(), InstructionId{0});
  std::iota(place_.begin(), place_.end(), std::uint32_t{0});
  find_edges();
}

void Reading::find_edges() {
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
    if (is_send(program_.code[id].kind)) edge_of(id).sends.push_back(id);
  }
}

InstructionId Reading::head_of(std::uint32_t lane) const {
  return next_[lane] < lanes_.lane_begin[lane + 1] ? lanes_.instructions[next_[lane]]
                                                   : kNoInstruction;
}

bool Reading::is_issued(InstructionId id) const {
  if (program_.code[id].has(Instruction::kOnComputeLane)) return true;
  const InstructionId computation = head_of(compute_lane_of(id));
  return computation == kNoInstruction || place_[id] < place_[computation];
}

InstructionId Reading::first_unmet(InstructionId id) const {
  const Instruction& in = program_.code[id];
  const bool transfer = is_transfer(in.kind);
  if (!transfer && in.link != kNoInstruction && ended_[in.link] == 0) return in.link;
  for (const auto& [self, input] : program_.extra_inputs_of(id)) {
    if (ended_[input] == 0) return input;
  }
  if (transfer || program_.policy.issue != Issue::Grouped) return kNoInstruction;
  const auto begin = program_.rank_begin[static_cast<std::size_t>(rank_of(id).value)];
  for (std::uint32_t at = place_[id]; at-- > begin;) {  // the run before it
    if (!is_transfer(program_.code[list_[at]].kind)) break;
    if (ended_[list_[at]] == 0) return list_[at];
  }
  return kNoInstruction;
}

/// Whether the edge's order of sends allows this RECV to be the next.
bool Reading::is_due(InstructionId receive) const {
  const InstructionId send = partners_[receive];
  if (send == kNoInstruction) return false;
  const Edge& edge = edge_of(send);
  return edge.received < edge.sends.size() && edge.sends[edge.received] == send;
}

void Reading::end(InstructionId id) {
  ended_[id] = 1;
  --unfinished_;
  ++next_[lanes_.lane_of[id]];
}

const Protocol& Reading::protocol_of(InstructionId send) const {
  return program_.code[send].kind == ActionKind::SendF ? program_.policy.send_f
                                                       : program_.policy.send_b;
}

/// What it takes of its edge's credit.
std::int64_t Reading::amount_of(InstructionId send) const {
  return protocol_of(send).kind == Protocol::Kind::EagerBytes ? bytes_[program_.code[send].route]
                                                              : 1;
}

/// Whether a ready SEND leaves without its RECV; it takes its credit then.
bool Reading::leaves(InstructionId send) {
  const Protocol& protocol = protocol_of(send);
  if (protocol.kind == Protocol::Kind::Rendezvous ||
      program_.code[send].has(Instruction::kRendezvous)) {
    return false;
  }
  std::int64_t& taken = edge_of(send).credit_taken[program_.code[send].kind == ActionKind::SendB];
  if (protocol.kind != Protocol::Kind::EagerUnlimited &&
      taken + amount_of(send) > protocol.credit) {
    return false;
  }
  taken += amount_of(send);
  return true;
}

bool Reading::try_send(InstructionId send) {
  if (!is_head(send) || first_unmet(send) != kNoInstruction) return false;
  if (leaves(send)) {
    left_[send] = 1;
    end(send);
    return true;
  }
  const InstructionId receive = partners_[send];
  if (receive == kNoInstruction || !is_head(receive) || !is_due(receive)) return false;
  ++edge_of(send).received;
  end(send);
  end(receive);
  return true;
}

bool Reading::try_receive(InstructionId receive) {
  if (!is_head(receive) || !is_due(receive)) return false;
  const InstructionId send = partners_[receive];
  if (left_[send] == 0) return ended_[send] == 0 && try_send(send);
  Edge& edge = edge_of(send);
  ++edge.received;
  edge.credit_taken[program_.code[send].kind == ActionKind::SendB] -= amount_of(send);
  end(receive);
  return true;
}

bool Reading::try_head(std::uint32_t lane) {
  const InstructionId head = head_of(lane);
  if (head == kNoInstruction) return false;
  const ActionKind kind = program_.code[head].kind;
  if (is_send(kind)) return try_send(head);
  if (is_recv(kind)) return try_receive(head);
  if (first_unmet(head) != kNoInstruction) return false;
  if (program_.code[head].in_collective()) return try_collective(head);
  end(head);
  return true;
}

/// The first member, by rank, that is not ready; kNoInstruction: all are.
InstructionId Reading::missing_member(InstructionId member) const {
  for (const auto& other : program_.collectives[program_.code[member].route].members) {
    const bool ready =
        is_head(other.instruction) && first_unmet(other.instruction) == kNoInstruction;
    if (!ready) return other.instruction;
  }
  return kNoInstruction;
}

bool Reading::try_collective(InstructionId member) {
  if (missing_member(member) != kNoInstruction) return false;
  for (const auto& each : program_.collectives[program_.code[member].route].members)
    end(each.instruction);
  return true;
}

void Reading::go_on() {
  for (bool progress = true; progress;) {
    progress = false;
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane) {
      while (try_head(lane)) progress = true;
    }
  }
}

InstructionId Reading::transfer_waits_for(InstructionId end) const {
  const InstructionId other = partners_[end];
  if (is_recv(program_.code[end].kind)) return other;
  const Edge& edge = edge_of(end);  // the oldest message gives credit back first
  for (std::size_t k = edge.received; k < edge.sends.size() && left_[edge.sends[k]] != 0; ++k) {
    if (program_.code[edge.sends[k]].kind == program_.code[end].kind)
      return partners_[edge.sends[k]];
  }
  return other;
}

/// The RECV that has to end before this one can, as the edge's order of sends has it; itself if it
/// is due.
InstructionId Reading::due_before(InstructionId receive) const {
  const InstructionId send = partners_[receive];
  if (send == kNoInstruction || is_due(receive)) return receive;
  const Edge& edge = edge_of(send);
  return edge.received < edge.sends.size() ? partners_[edge.sends[edge.received]] : kNoInstruction;
}

InstructionId Reading::waits_for(InstructionId head) const {
  if (is_recv(program_.code[head].kind) && !is_due(head)) {
    const InstructionId first = due_before(head);
    return first == head ? kNoInstruction : first;
  }
  InstructionId wanted = first_unmet(head);
  if (wanted == kNoInstruction && is_transfer(program_.code[head].kind))
    wanted = transfer_waits_for(head);
  if (wanted == kNoInstruction && program_.code[head].in_collective())
    wanted = missing_member(head);
  if (wanted != kNoInstruction && is_recv(program_.code[wanted].kind)) return due_before(wanted);
  return wanted;
}

std::vector<HeadWait> Reading::cycle() const {
  constexpr std::uint32_t kUnseen = 0;
  std::vector<std::uint32_t> seen(lanes_.count(), kUnseen);  // the walk that came by first
  std::vector<HeadWait> walk;
  for (std::uint32_t start = 0; start < lanes_.count(); ++start) {
    walk.clear();
    for (std::uint32_t lane = start;;) {
      const InstructionId head = head_of(lane);
      if (head == kNoInstruction || !is_issued(head)) break;
      if (seen[lane] == start + 1) {
        const auto first = std::find_if(walk.begin(), walk.end(),
                                        [&](const HeadWait& w) { return w.head == head; });
        return {first, walk.end()};
      }
      if (seen[lane] != kUnseen) break;
      seen[lane] = start + 1;
      const InstructionId wanted = waits_for(head);
      if (wanted == kNoInstruction || ended_[wanted] != 0) break;
      lane = is_issued(wanted) ? lanes_.lane_of[wanted] : compute_lane_of(wanted);
      walk.push_back({head, wanted, head_of(lane)});
    }
  }
  return {};
}

/// Whether the computation produces what the SEND carries.
bool Reading::makes(InstructionId computation, InstructionId send) const {
  const Instruction& wanted = program_.code[send];
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

bool Reading::may_move(InstructionId end, InstructionId head) const {
  if (place_[head] >= place_[end]) return false;
  if (is_recv(program_.code[end].kind)) return is_due(end);
  for (std::uint32_t at = place_[head]; at < place_[end]; ++at) {
    const Instruction& in = program_.code[list_[at]];
    const bool same_edge =
        is_send(in.kind) && edge_of_route_[in.route] == edge_of_route_[program_.code[end].route];
    if (same_edge || (!is_transfer(in.kind) && makes(list_[at], end))) return false;
  }
  return first_unmet(end) == kNoInstruction;
}

bool Reading::is_awaited(InstructionId end) const {
  const InstructionId other = partners_[end];
  if (other == kNoInstruction) return false;
  if (is_recv(program_.code[end].kind)) {
    return left_[other] != 0 || (is_head(other) && first_unmet(other) == kNoInstruction);
  }
  return is_head(other) && is_due(other);
}

void Reading::move(InstructionId end, InstructionId before) {
  const std::uint32_t from = place_[end], to = place_[before];
  const auto first = list_.begin();
  std::rotate(first + to, first + from, first + from + 1);
  for (std::uint32_t at = to; at <= from; ++at) place_[list_[at]] = at;
  const std::uint32_t lane = lanes_.lane_of[end];
  std::uint32_t at = next_[lane];
  while (lanes_.instructions[at] != end) ++at;
  for (; at > next_[lane] && place_[lanes_.instructions[at - 1]] > to; --at)
    std::swap(lanes_.instructions[at - 1], lanes_.instructions[at]);
}

}  // namespace pipewright::planner
