#include "exec/runtime/transfer_ends.hpp"

#include <utility>

#include "core/program/start_rules.hpp"

namespace pipewright::exec {

TransferEnds::TransferEnds(const Program& program, InstructionId begin, InstructionId end)
    : program_(program),
      begin_(begin),
      end_(end),
      ended_(std::make_unique<std::atomic<std::uint8_t>[]>(end - begin)) {
  reset();
}

void TransferEnds::reset() {
  const std::size_t n = end_ - begin_;
  for (std::size_t i = 0; i < n; ++i) ended_[i].store(0, std::memory_order_relaxed);
  has_data_.assign(n, 0);
  payload_.clear();
  payload_.resize(n);
  start_.assign(n, kNotEnded);
  moving_.assign(n, kNotEnded);
  ended_at_.assign(n, kNotEnded);
}

void TransferEnds::issue(InstructionId id, PayloadPtr data) {
  if (data != nullptr || !is_send(program_.code[id].kind)) provide(id, std::move(data));
}

void TransferEnds::provide(InstructionId id, PayloadPtr data) {
  has_data_[at(id)] = 1;
  if (data != nullptr) payload(id) = std::move(data);  // a RECV's may be here already
}

bool TransferEnds::has_data(InstructionId id) const {
  if (has_data_[at(id)] == 0) return false;
  if (program_.part_of.empty() || !program_.code[id].in_collective()) return true;
  const auto is_of_replicas = [this](InstructionId of) {
    const ActionKind kind = program_.code[of].kind;
    return !is_transfer(kind) && !is_call(kind);
  };
  return for_each_datum(program_, id, [&](InstructionId input) {
    return !program_.code[input].is_communication() ||
           (is_of_replicas(id) && is_of_replicas(input)) || has_ended(input);
  });
}

void TransferEnds::end(InstructionId id, std::int64_t now) {
  ended_at_[at(id)] = now;
  ended_[at(id)].store(1, std::memory_order_release);
}

void TransferEnds::report(Timeline& timeline, Progress& progress) const {
  for (InstructionId id = begin_; id < end_; ++id) {
    if (!program_.code[id].is_communication()) continue;
    timeline.start[id] = start_[at(id)];
    timeline.moving[id] = moving_[at(id)];
    timeline.end[id] = ended_at_[at(id)];
    progress.ended[id] = has_ended(id);
  }
}

}  // namespace pipewright::exec
