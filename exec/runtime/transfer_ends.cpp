#include "exec/runtime/transfer_ends.hpp"

namespace pipewright::exec {

TransferEnds::TransferEnds(const Program& program, InstructionId begin, InstructionId end)
    : program_(program),
      begin_(begin),
      end_(end),
      lanes_(lane_table(program)),
      ended_(std::make_unique<std::atomic<std::uint8_t>[]>(end - begin)) {
  reset();
}

void TransferEnds::reset() {
  const std::size_t n = end_ - begin_;
  for (std::size_t i = 0; i < n; ++i) ended_[i].store(0, std::memory_order_relaxed);
  state_.assign(n, 0);
  payload_.clear();
  payload_.resize(n);
  start_.assign(n, kNotEnded);
  moving_.assign(n, kNotEnded);
  ended_at_.assign(n, kNotEnded);
  next_.assign(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1);
  lanes_to_try_.clear();
  on_compute_lanes_.clear();
}

void TransferEnds::issue(InstructionId end, PayloadPtr data) {
  mark(end, kIssued);
  if (data != nullptr || !is_send(code(end).kind)) mark(end, kData);
  if (data != nullptr) payload(end) = std::move(data);  // a RECV's may be here already
  look_at(end);
}

void TransferEnds::provide(InstructionId send, PayloadPtr data) {
  mark(send, kData);
  payload(send) = std::move(data);
  look_at(send);
}

void TransferEnds::look_at(InstructionId id) {
  // A rank issues what is on its compute lane when it stands there.
  if (code(id).has(Instruction::kOnComputeLane)) {
    on_compute_lanes_.push_back(id);
  } else {
    lanes_to_try_.push_back(lanes_.lane_of[id]);
  }
}

InstructionId TransferEnds::next_ready(std::int64_t now) {
  while (!on_compute_lanes_.empty() || !lanes_to_try_.empty()) {
    InstructionId head = kNoInstruction;
    if (!on_compute_lanes_.empty()) {
      head = on_compute_lanes_.back();
      on_compute_lanes_.pop_back();
    } else {
      const std::uint32_t lane = lanes_to_try_.back();
      lanes_to_try_.pop_back();
      if (next_[lane] == lanes_.lane_begin[lane + 1]) continue;
      head = lanes_.instructions[next_[lane]];
    }
    if (!is(head, kIssued | kData) || is(head, kReady)) continue;
    mark(head, kReady);
    start_[at(head)] = now;
    return head;
  }
  return kNoInstruction;
}

void TransferEnds::end(InstructionId id, std::int64_t now) {
  ended_at_[at(id)] = now;
  ended_[at(id)].store(1, std::memory_order_release);
  if (code(id).has(Instruction::kOnComputeLane)) return;
  const std::uint32_t lane = lanes_.lane_of[id];
  ++next_[lane];
  lanes_to_try_.push_back(lane);
}

void TransferEnds::report(Timeline& timeline, Progress& progress) const {
  for (InstructionId id = begin_; id < end_; ++id) {
    if (!code(id).is_communication()) continue;
    timeline.start[id] = start_[at(id)];
    timeline.moving[id] = moving_[at(id)];
    timeline.end[id] = ended_at_[at(id)];
    progress.ended[id] = has_ended(id);
    progress.left[id] = is(id, kLeft);
  }
}

}  // namespace pipewright::exec
