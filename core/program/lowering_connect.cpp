// What the first use of a connection and registered buffers do to a Program (docs/semantics.md
// §2.2).
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/program/first_uses.hpp"
#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

/// The hosts' walk: each passes its list until it stands at the first end of a connection that the
/// other host has not come to, or at a NEW_GROUP that some host has not come to.
class Hosts {
 public:
  explicit Hosts(Program& program)
      : program_(program),
        first_(first_ends(program)),
        makings_(static_cast<std::size_t>(program.ranks())) {
    for (int r = 0; r < program.ranks(); ++r) {
      lists_.push_back(list_of(RankId(r)));
      for (const InstructionId id : lists_.back()) note(static_cast<std::size_t>(r), id);
    }
    next_.assign(lists_.size(), 0);
    made_.assign(lists_.size(), 0);
  }

  void walk() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < lists_.size(); ++r) moved |= go_on(r);
    }
    for (std::size_t r = 0; r < lists_.size(); ++r) {
      if (next_[r] < lists_[r].size()) leave_standing(r);
    }
  }

 private:
  bool makes_group(InstructionId id) const {
    return program_.code[id].kind == ActionKind::NewGroup;
  }

  /// What a host may stand at, in the order in which it comes to it.
  std::vector<InstructionId> list_of(RankId rank) const {
    std::vector<InstructionId> list;
    const auto r = static_cast<std::size_t>(rank.value);
    for (const bool at_start : {true, false}) {
      for (InstructionId id = program_.rank_begin[r]; id < program_.rank_begin[r + 1]; ++id) {
        const bool stops = is_transfer(program_.code[id].kind) || makes_group(id);
        if (stops && program_.code[id].has(Instruction::kAtStart) == at_start) list.push_back(id);
      }
    }
    return list;
  }

  void note(std::size_t rank, InstructionId id) {
    if (makes_group(id)) return makings_[rank].push_back(id);
    const std::uint32_t batch = program_.batch_of(id);
    if (batch != kNoBatch) batches_[batch].push_back(id);
  }

  /// The ends of one operation, which a host comes to together (§2.4).
  std::vector<InstructionId> operation_of(InstructionId end) const {
    const std::uint32_t batch = program_.batch_of(end);
    return batch == kNoBatch ? std::vector{end} : batches_.at(batch);
  }

  bool go_on(std::size_t rank) {
    bool moved = false;
    for (; next_[rank] < lists_[rank].size(); ++next_[rank]) {
      const InstructionId id = lists_[rank][next_[rank]];
      moved |= come_to(rank, id);
      if (waiting_at(rank, id) != kNoInstruction) break;
      moved = true;
    }
    return moved;
  }

  /// True if it had not come there before.
  bool come_to(std::size_t rank, InstructionId id) {
    if (makes_group(id)) {
      const auto turn = static_cast<std::size_t>(
          std::find(makings_[rank].begin(), makings_[rank].end(), id) - makings_[rank].begin());
      const bool is_new = made_[rank] <= turn;
      made_[rank] = std::max(made_[rank], turn + 1);
      return is_new;
    }
    bool is_new = false;
    for (const InstructionId end : operation_of(id)) {
      is_new |= came_.insert(side_of(program_, end)).second;
    }
    return is_new;
  }

  /// What holds it up there: the first end of its operation that cannot connect, or the NEW_GROUP;
  /// kNoInstruction: nothing.
  InstructionId waiting_at(std::size_t rank, InstructionId id) const {
    if (makes_group(id)) {
      const std::size_t turns = made_[rank];
      const bool all = std::all_of(made_.begin(), made_.end(),
                                   [turns](std::size_t made) { return made >= turns; });
      return all ? kNoInstruction : id;
    }
    for (const InstructionId end : operation_of(id)) {
      if (!came_.contains(other_side(side_of(program_, end)))) return end;
    }
    return kNoInstruction;
  }

  /// What the host of a rank that stands at `at` waits for.
  InstructionId awaited(std::size_t rank, InstructionId at) const {
    if (!makes_group(at)) {
      const auto other = first_.find(other_side(side_of(program_, at)));
      return other == first_.end() ? kNoInstruction : other->second;
    }
    for (std::size_t other = 0; other < made_.size(); ++other) {
      if (made_[other] >= made_[rank]) continue;
      return made_[rank] > makings_[other].size() ? kNoInstruction
                                                  : makings_[other][made_[rank] - 1];
    }
    return kNoInstruction;
  }

  void leave_standing(std::size_t rank) {
    const InstructionId first = lists_[rank][next_[rank]];
    const InstructionId at = waiting_at(rank, first);
    if (program_.host_stands.empty()) program_.host_stands.resize(lists_.size());
    program_.host_stands[rank] = {at, awaited(rank, at)};
    for (std::size_t i = next_[rank]; i < lists_[rank].size(); ++i)
      program_.code[lists_[rank][i]].flags |= Instruction::kNotPassed;
    // Receives issued at time 0 stand in front of everything.
    const InstructionId begin =
        program_.code[first].has(Instruction::kAtStart) ? program_.rank_begin[rank] : first;
    for (InstructionId id = begin; id < program_.rank_begin[rank + 1]; ++id) {
      if (!is_transfer(program_.code[id].kind)) program_.code[id].flags |= Instruction::kNotPassed;
    }
  }

  Program& program_;
  const std::map<EdgeSide, InstructionId> first_;
  std::vector<std::vector<InstructionId>> lists_;    // by rank
  std::vector<std::size_t> next_;                    // by rank: where its host is
  std::vector<std::vector<InstructionId>> makings_;  // by rank: its NEW_GROUPs
  std::vector<std::size_t> made_;                    // by rank: to how many its host has come
  std::set<EdgeSide> came_;                          // the sides whose first end a host has come to
  std::map<std::uint32_t, std::vector<InstructionId>> batches_;  // that are one operation
};

/// Where the host is the compute lane, the first message of a directed edge makes its connection.
void meet_first_messages(Program& program) {
  for (const auto& [side, end] : first_ends(program)) {
    if (side.sends) program.code[end].flags |= Instruction::kRendezvous;
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
