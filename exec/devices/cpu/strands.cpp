#include "exec/devices/cpu/strands.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/divided/divided_parts.hpp"
#include "exec/training/expert_exchange.hpp"
#include "exec/training/tensor_sums.hpp"

namespace pipewright::exec::cpu {

namespace {

/// Of the two actions of a pair, which may be of one stage.
std::string name_of(const Action& action, const RingOfMembers& ring) {
  return std::string(to_string(action.kind)) + " " + ring.what;
}

}  // namespace

const Strands::Strand* Strands::find(const Action& action) const {
  const auto found = std::find_if(strands_.begin(), strands_.end(),
                                  [&](const Strand& one) { return one.action == action; });
  return found == strands_.end() ? nullptr : &*found;
}

Strands::Strand& Strands::at(const Action& action) {
  const Strand* const found = find(action);
  PIPEWRIGHT_ASSERT(found != nullptr, "a part of an action that has not begun");
  return strands_[static_cast<std::size_t>(found - strands_.data())];
}

void Strands::begin(const Action& action, Task<void> task, RankGroups& stage) {
  Strand& strand = strands_.emplace_back(Strand{action, std::move(task), &stage, {}});
  strand.task.start();
  note_pause(strand);
}

void Strands::go_on(const Action& action) {
  Strand& strand = at(action);
  if (strand.task.has_ended()) return;
  PIPEWRIGHT_ASSERT(!strand.paused.wanted, "an action goes on before what it waits for is there");
  strand.paused.computation.resume();
  note_pause(strand);
}

void Strands::note_pause(Strand& strand) {
  if (strand.task.has_ended()) return strand.task.take();
  strand.paused = strand.stage->point().take_paused();
}

void Strands::finish(const Action& action) {
  go_on(action);
  Strand& strand = at(action);
  PIPEWRIGHT_ASSERT(strand.task.has_ended(), "an action ends before its last sum");
  strands_.erase(strands_.begin() + (&strand - strands_.data()));
}

const Strands::Strand* Strands::strand_of_call(InstructionId call) const {
  const Action* const action = program_.action_of_part(call);
  return action == nullptr ? nullptr : find(*action);
}

std::optional<Strands::Paused> Strands::begin_call(InstructionId call) {
  const Strand* const found = strand_of_call(call);
  if (found == nullptr) return std::nullopt;
  Strand& strand = at(found->action);
  const Wanted wanted = strand.paused.wanted;
  PIPEWRIGHT_ASSERT(
      wanted && difference(program_.call(program_.code[call]), call_for(wanted)).empty(),
      program_.text(call) + " is issued where its layers do not ask for it");
  if (is_beside(wanted)) strand.beside.push_back(std::exchange(strand.paused.wanted, {}));
  return Paused{wanted, *strand.stage};
}

/// Calls of an action end in their order.
std::optional<Strands::Paused> Strands::end_call(InstructionId call) {
  const Strand* const found = strand_of_call(call);
  if (found == nullptr) return std::nullopt;
  Strand& strand = at(found->action);
  Wanted wanted;
  if (strand.beside.empty()) {
    wanted = std::exchange(strand.paused.wanted, {});
  } else {
    wanted = strand.beside.front();
    strand.beside.pop_front();
  }
  PIPEWRIGHT_ASSERT(wanted, "a call ended that nobody has issued");
  return Paused{wanted, *strand.stage};
}

void Strands::issue(InstructionId call) {
  const auto begun = begin_call(call);
  if (!begun || !is_beside(begun->wanted)) return;
  const RingOfMembers& ring = *begun->wanted.ring;
  send_round(name_of(*program_.action_of_part(call), ring), ring, *groups_.context);
}

void Strands::bring_together(InstructionId call) {
  const auto ended = end_call(call);
  if (!ended) return;
  const Wanted& wanted = ended->wanted;
  if (is_beside(wanted)) {
    RingOfMembers& ring = *wanted.ring;
    return take_round(name_of(*program_.action_of_part(call), ring), ring, *groups_.context);
  }
  if (wanted.exchange != nullptr) return exec::bring_together(*wanted.exchange, *groups_.experts);
  collectives::Group& group = groups_.along(wanted.axis);
  if (wanted.ring != nullptr) return exec::bring_together(*wanted.ring, group);
  if (wanted.rows != nullptr) return exec::bring_together(*wanted.rows, group);
  exec::bring_together(*wanted.sum, ended->stage.along(wanted.axis), group);
}

}  // namespace pipewright::exec::cpu
