#include "exec/runtime/needs.hpp"

#include <utility>

#include "core/program/start_rules.hpp"

namespace pipewright::exec {
namespace {

class Needs {
 public:
  Needs(const Program& program, RankId rank)
      : program_(program),
        begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
        end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
        needs_(end_ - begin_),
        places_(places_in_flight(program, rank)) {}

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

  /// The compute lane stands in front of it until its place is free.
  void hold(InstructionId id) {
    if (!places_.empty() && places_[id - begin_] != kNoInstruction)
      held_.push_back(places_[id - begin_]);
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
    for_each_input(program_, id, begin_, [&](InstructionId input) {
      need(id, input);
      return true;
    });
  }

  const Program& program_;
  const InstructionId begin_, end_;
  std::vector<std::vector<InstructionId>> needs_;
  const std::vector<InstructionId> places_;
  std::vector<InstructionId> held_;  // since the compute lane's last instruction
  InstructionId reached_ = kNoInstruction;
};

}  // namespace

std::vector<std::vector<InstructionId>> needs_of(const Program& program, RankId rank) {
  return Needs(program, rank).run();
}

}  // namespace pipewright::exec
