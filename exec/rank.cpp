#include "exec/rank.hpp"

#include <algorithm>

namespace pipewright::exec {

void Record::reset(std::size_t instructions) {
  timeline.start.assign(instructions, kNotEnded);
  timeline.end.assign(instructions, kNotEnded);
  timeline.moving.assign(instructions, kNotEnded);
  timeline.makespan_ns = 0;
  progress.ended.assign(instructions, 0);
  progress.left.assign(instructions, 0);
}

RankRun::RankRun(const Program& program, RankId rank, Transport& transport, Record& record)
    : program_(program),
      rank_(rank),
      transport_(transport),
      record_(record),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      at_(begin_) {
  if (!program.has_collectives) return;
  for (const auto& [id, input] : program.extra_inputs) {
    const bool own = begin_ <= id && id < end_;
    if (!own && begin_ <= input && input < end_) awaited_.push_back(input);
  }
  std::sort(awaited_.begin(), awaited_.end());
}

void RankRun::walk(Device& device) {
  device_ = &device;
  finished_.assign(end_ - begin_, 0);
  late_sends_.clear();
  for (InstructionId id = begin_; id < end_; ++id) {
    if (code(id).has(Instruction::kAtStart)) issue(id);
  }
  for (InstructionId id = begin_; id < end_; ++id) {
    stand_at(id);
    if (!is_transfer(code(id).kind)) {
      compute(id);
    } else if (code(id).has(Instruction::kOnComputeLane)) {
      wait_for_inputs(id);
      issue(id);
      finish_transfer(id);
    } else if (!code(id).has(Instruction::kAtStart)) {
      issue(id);
    }
  }
  for (InstructionId id = begin_; id < end_; ++id) {
    if (!is_transfer(code(id).kind)) continue;
    stand_at(id);
    finish_transfer(id);
  }
  device.end_step();
}

void RankRun::compute(InstructionId id) {
  wait_for_inputs(id);
  if (code(id).has(Instruction::kJoinsRun)) wait_for_run_before(id);
  const std::int64_t start = transport_.now();
  record_.timeline.start[id] = record_.timeline.moving[id] = start;
  computes_.store(true, std::memory_order_relaxed);
  device_->compute(id);
  computes_.store(false, std::memory_order_relaxed);
  record_.timeline.end[id] = transport_.now();
  record_.progress.ended[id] = 1;
  record_.computations.fetch_add(1, std::memory_order_relaxed);
  if (std::binary_search(awaited_.begin(), awaited_.end(), id)) transport_.announce(rank_, id);
  if (!late_sends_.empty()) provide_late_sends();
}

void RankRun::issue(InstructionId id) {
  if (!is_send(code(id).kind)) return transport_.issue(rank_, id, nullptr);
  if (has_data(id)) return transport_.issue(rank_, id, device_->give(id));
  late_sends_.push_back(id);
  transport_.issue(rank_, id, nullptr);
}

/// A computation's RECV is its link; a transfer end's link is its partner, which is no input.
void RankRun::wait_for_inputs(InstructionId id) {
  const Instruction& in = code(id);
  if (!is_transfer(in.kind) && in.link != kNoInstruction) wait_for(in.link);
  if (!in.has(Instruction::kExtraInput)) return;
  for (const auto& [self, input] : program_.extra_inputs_of(id)) wait_for(input);
}

void RankRun::wait_for_run_before(InstructionId id) {
  for (; id > begin_ && is_transfer(code(id - 1).kind); --id) finish_transfer(id - 1);
}

void RankRun::wait_for(InstructionId input) {
  if (is_transfer(code(input).kind)) return finish_transfer(input);
  // On another rank: a member of a collective. Further down this very list: it can never come, and
  // the transport knows it.
  const bool own = begin_ <= input && input < end_;
  if (!own || record_.progress.ended[input] == 0) transport_.wait(rank_, input);
}

void RankRun::finish_transfer(InstructionId id) {
  std::uint8_t& finished = finished_[id - begin_];
  if (finished != 0) return;
  transport_.wait(rank_, id);
  if (is_recv(code(id).kind)) device_->accept(id, transport_.take(rank_, id));
  finished = 1;
}

bool RankRun::has_data(InstructionId send) const {
  if (!code(send).has(Instruction::kExtraInput)) return true;
  const auto inputs = program_.extra_inputs_of(send);
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](const auto& row) { return record_.progress.ended[row.second] != 0; });
}

void RankRun::provide_late_sends() {
  std::erase_if(late_sends_, [&](InstructionId send) {
    if (!has_data(send)) return false;
    transport_.provide(rank_, send, device_->give(send));
    return true;
  });
}

}  // namespace pipewright::exec
