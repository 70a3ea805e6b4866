#include "exec/runtime/needs.hpp"

#include <utility>

namespace pipewright::exec {
namespace {

class Needs {
 public:
  Needs(const Program& program, RankId rank)
      : program_(program),
        begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
        end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
        needs_(end_ - begin_) {
    if (program.policy.in_flight > 0 && program.policy.issue == Issue::Stream) find_places(rank);
  }

  std::vector<std::vector<InstructionId>> run() {
    for (InstructionId id = begin_; id < end_; ++id) {
      if (program_.code[id].has(Instruction::kAtStart)) {
        hold(id);
        add_held(id);
      }
    }
    for (InstructionId id = begin_; id < end_; ++id) {
      const Instruction& in = program_.code[id];
      if (!in.has(Instruction::kAtStart)) reach(id);
      add_inputs(id);
      if (!in.has(Instruction::kOnComputeLane)) continue;
      reached_ = id;
      held_.clear();
    }
    return std::move(needs_);
  }

 private:
  void need(InstructionId id, InstructionId what) {
    if (what != kNoInstruction) needs_[id - begin_].push_back(what);
  }

  /// By transfer end: the one whose place it takes (§2.2).
  void find_places(RankId rank) {
    place_of_.assign(end_ - begin_, kNoInstruction);
    std::vector<InstructionId> transfers;
    for (const InstructionId id : issue_order(program_, rank)) {
      if (!is_transfer(program_.code[id].kind)) continue;
      const auto window = static_cast<std::size_t>(program_.policy.in_flight);
      if (transfers.size() >= window) place_of_[id - begin_] = transfers[transfers.size() - window];
      transfers.push_back(id);
    }
  }

  /// The compute lane stands in front of it until its place is free.
  void hold(InstructionId id) {
    if (!place_of_.empty() && place_of_[id - begin_] != kNoInstruction)
      held_.push_back(place_of_[id - begin_]);
  }
  void add_held(InstructionId id) {
    for (const InstructionId held : held_) need(id, held);
  }

  void reach(InstructionId id) {
    hold(id);
    add_held(id);
    if (!program_.code[id].has(Instruction::kOnComputeLane)) need(id, reached_);
  }

  void add_inputs(InstructionId id) {
    const Instruction& in = program_.code[id];
    if (!is_transfer(in.kind)) need(id, in.link);
    for (const auto& [self, input] : program_.extra_inputs_of(id)) need(id, input);
    if (!in.has(Instruction::kJoinsRun)) return;
    for (InstructionId member = id; member > begin_ && is_transfer(program_.code[member - 1].kind);
         --member)
      need(id, member - 1);
  }

  const Program& program_;
  const InstructionId begin_, end_;
  std::vector<std::vector<InstructionId>> needs_;
  std::vector<InstructionId> place_of_;  // empty without a limit
  std::vector<InstructionId> held_;      // since the compute lane's last instruction
  InstructionId reached_ = kNoInstruction;
};

}  // namespace

std::vector<std::vector<InstructionId>> needs_of(const Program& program, RankId rank) {
  return Needs(program, rank).run();
}

}  // namespace pipewright::exec
