#include "exec/devices/cpu/strands.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/training/tensor_sums.hpp"

namespace pipewright::exec::cpu {
namespace {

/// What a call says of the sum, and what the layer wants.
bool is_for(const Call& call, const SumOfMembers& sum) {
  const bool fits = !call.shape || *call.shape == std::vector<std::int64_t>{sum.rows, sum.width};
  return call.kind == ActionKind::AllReduce && call.group == "tp" && call.data == sum.what && fits;
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

void Strands::begin(const Action& action, Task<void> task, TensorGroup* tensor) {
  Strand& strand = strands_.emplace_back(Strand{action, std::move(task), tensor, {}});
  strand.task.start();
  note_pause(strand);
}

void Strands::go_on(const Action& action) {
  Strand& strand = at(action);
  if (strand.task.has_ended()) return;
  PIPEWRIGHT_ASSERT(strand.paused.wanted == nullptr, "an action goes on before its sum is there");
  strand.paused.computation.resume();
  note_pause(strand);
}

void Strands::note_pause(Strand& strand) {
  if (strand.task.has_ended()) return strand.task.take();
  strand.paused = strand.tensor->take_paused();
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

void Strands::require_wanted(InstructionId call) const {
  const Strand* const strand = strand_of_call(call);
  if (strand == nullptr) return;  // a call beside the pipeline, which brings nothing
  const SumOfMembers* const wanted = strand->paused.wanted;
  PIPEWRIGHT_ASSERT(wanted != nullptr && is_for(program_.call(program_.code[call]), *wanted),
                    program_.text(call) + " is issued where its layers do not ask for it");
}

void Strands::bring_together(InstructionId call) {
  const Strand* const found = strand_of_call(call);
  if (found == nullptr) return;
  Strand& strand = at(found->action);
  SumOfMembers* const wanted = std::exchange(strand.paused.wanted, nullptr);
  PIPEWRIGHT_ASSERT(wanted != nullptr && group_ != nullptr, "a call ended that nobody has issued");
  exec::bring_together(*wanted, *strand.tensor, *group_);
}

}  // namespace pipewright::exec::cpu
