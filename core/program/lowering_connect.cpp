// What the first use of a connection and registered buffers do to a Program (docs/semantics.md
// §2.2).
#include <map>
#include <utility>
#include <vector>

#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

using Edge = std::pair<RankId, RankId>;  // source, destination

struct Connection {
  InstructionId first_send = kNoInstruction, first_recv = kNoInstruction;
  bool source_came = false, destination_came = false;
};

/// The hosts' walk: each passes its list until it stands at the first end of a connection that the
/// other host has not come to.
class Hosts {
 public:
  explicit Hosts(Program& program) : program_(program) {
    for (int r = 0; r < program.ranks(); ++r) {
      ends_.push_back(issue_order(program, RankId(r)));
      for (const InstructionId id : ends_.back()) note_first(id);
    }
    next_.assign(ends_.size(), 0);
  }

  void walk() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ends_.size(); ++r) moved |= go_on(r);
    }
    for (std::size_t r = 0; r < ends_.size(); ++r) {
      if (next_[r] < ends_[r].size()) leave_standing(r);
    }
  }

 private:
  Edge edge_of(InstructionId end) const {
    const Route& route = program_.routes[program_.code[end].route];
    return {route.source, route.destination};
  }

  void note_first(InstructionId end) {
    Connection& connection = connections_[edge_of(end)];
    InstructionId& first =
        is_send(program_.code[end].kind) ? connection.first_send : connection.first_recv;
    if (first == kNoInstruction) first = end;
  }

  bool go_on(std::size_t rank) {
    bool moved = false;
    for (; next_[rank] < ends_[rank].size(); ++next_[rank]) {
      const InstructionId end = ends_[rank][next_[rank]];
      Connection& connection = connections_[edge_of(end)];
      const bool sends = is_send(program_.code[end].kind);
      bool& came = sends ? connection.source_came : connection.destination_came;
      moved |= !came;
      came = true;
      if (!(sends ? connection.destination_came : connection.source_came)) break;
      moved = true;
    }
    return moved;
  }

  void leave_standing(std::size_t rank) {
    const InstructionId at = ends_[rank][next_[rank]];
    const Connection& connection = connections_[edge_of(at)];
    if (program_.host_stands.empty()) program_.host_stands.resize(ends_.size());
    program_.host_stands[rank] = {
        at, is_send(program_.code[at].kind) ? connection.first_recv : connection.first_send};
    for (std::size_t i = next_[rank]; i < ends_[rank].size(); ++i)
      program_.code[ends_[rank][i]].flags |= Instruction::kNotPassed;
    // Receives issued at time 0 stand in front of everything.
    const InstructionId begin =
        program_.code[at].has(Instruction::kAtStart) ? program_.rank_begin[rank] : at;
    for (InstructionId id = begin; id < program_.rank_begin[rank + 1]; ++id) {
      if (!is_transfer(program_.code[id].kind)) program_.code[id].flags |= Instruction::kNotPassed;
    }
  }

  Program& program_;
  std::vector<std::vector<InstructionId>> ends_;  // by rank
  std::vector<std::size_t> next_;                 // by rank: where its host is
  std::map<Edge, Connection> connections_;
};

/// Where the host is the compute lane, the first message of a directed edge makes its connection.
void meet_first_messages(Program& program) {
  std::map<Edge, bool> used;
  for (Instruction& in : program.code) {
    if (!is_send(in.kind)) continue;
    const Route& route = program.routes[in.route];
    bool& known = used[{route.source, route.destination}];
    if (!known) in.flags |= Instruction::kRendezvous;
    known = true;
  }
}

}  // namespace

void connect_ranks(Program& program) {
  if (program.policy.buffers == Buffers::Registered) {
    for (Instruction& in : program.code) {
      if (is_send(in.kind)) in.flags |= Instruction::kRendezvous;
    }
  }
  if (program.policy.connect == Connect::Ready) return;
  if (program.policy.issue == Issue::Stream) {
    Hosts(program).walk();
  } else {
    meet_first_messages(program);
  }
}

}  // namespace pipewright::lowering
