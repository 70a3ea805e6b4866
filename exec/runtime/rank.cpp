#include "exec/runtime/rank.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/program/start_rules.hpp"
#include "exec/base/checksum.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec {
namespace {

/// An element of the Record that others may look at while we write.
template <class Value>
void put(Value& element, Value value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<Value>(element).store(value, order);
}

template <class Value>
std::vector<Value> copy_of(std::vector<Value>& values) {
  std::vector<Value> copy(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    copy[i] = std::atomic_ref<Value>(values[i]).load(std::memory_order_acquire);
  }
  return copy;
}

/// Device::begin_instruction(), and its end on every way out.
class OnHost {
 public:
  OnHost(Device& device, InstructionId id) : device_(device) { device_.begin_instruction(id); }
  ~OnHost() { device_.end_instruction(); }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  Device& device_;
};

}  // namespace

void Record::reset(std::size_t instructions) {
  timeline.start.assign(instructions, kNotEnded);
  timeline.end.assign(instructions, kNotEnded);
  timeline.moving.assign(instructions, kNotEnded);
  timeline.makespan_ns = 0;
  progress.ended.assign(instructions, 0);
  progress.left.assign(instructions, 0);
}

/// First what has ended, then when: who has ended has a time.
void Record::copy_to(Timeline& timeline_copy, Progress& progress_copy) {
  progress_copy.ended = copy_of(progress.ended);
  progress_copy.left = copy_of(progress.left);
  timeline_copy.start = copy_of(timeline.start);
  timeline_copy.end = copy_of(timeline.end);
  timeline_copy.moving = copy_of(timeline.moving);
}

RankRun::RankRun(const Program& program, RankId rank, Transport& transport, Record& record,
                 std::size_t flight_entries, bool verify_payloads)
    : program_(program),
      rank_(rank),
      transport_(transport),
      record_(record),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      places_(places_in_flight(program, rank)),
      recorder_(flight_entries),
      verify_payloads_(verify_payloads),
      at_(begin_) {}

Standing RankRun::standing() const {
  return {phase_.load(), at(), waits_for_.load(std::memory_order_relaxed), recorder_.settled_ns()};
}

void RankRun::note(InstructionId id, FlightState state) {
  if (recorder_.is_on()) recorder_.note({id, state, kNoInstruction, transport_.now()});
}

void RankRun::walk(Device& device) {
  device_ = &device;
  recorder_.begin_step();
  stand_at(begin_);
  phase_.store(Standing::Phase::Walking);
  finished_.assign(end_ - begin_, 0);
  late_.clear();
  for (InstructionId id = begin_; id < end_; ++id) {
    if (code(id).has(Instruction::kAtStart)) issue(id);
  }
  for (InstructionId id = begin_; id < end_; ++id) {
    stand_at(id);
    if (!code(id).is_communication()) {
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
    if (!code(id).is_communication()) continue;
    stand_at(id);
    finish_transfer(id);
  }
  device.end_step();
  phase_.store(Standing::Phase::Done);
}

/// The rank's host stands further up (docs/semantics.md §2.2): what never starts never ends.
void RankRun::stop_behind_host(InstructionId id) {
  if (code(id).has(Instruction::kNotPassed)) wait_in_transport(at(), id);
}

void RankRun::compute(InstructionId id) {
  stop_behind_host(id);
  wait_for_inputs(id);
  const std::int64_t start = transport_.now();
  put(record_.timeline.start[id], start);
  put(record_.timeline.moving[id], start);
  if (recorder_.is_on()) {
    recorder_.note({id, FlightState::Started, kNoInstruction, start});
    recorder_.settle(local::steady_ns());
  }
  compute_on_device(id);
  const std::int64_t end = transport_.now();
  put(record_.timeline.end[id], end);
  put(record_.progress.ended[id], std::uint8_t{1}, std::memory_order_release);
  recorder_.note({id, FlightState::Ended, kNoInstruction, end});
  record_.computations.fetch_add(1, std::memory_order_relaxed);
  if (!late_.empty()) provide_late();
}

void RankRun::compute_on_device(InstructionId id) {
  const OnHost on_host(*device_, id);
  device_->compute(id);
}

void RankRun::issue(InstructionId id) {
  stop_behind_host(id);
  const InstructionId place = places_.empty() ? kNoInstruction : places_[id - begin_];
  if (place != kNoInstruction) wait_in_transport(at(), place);
  const bool receives = is_recv(code(id).kind);
  const bool is_late = !receives && !has_data(id);
  if (is_late) late_.push_back(id);
  std::optional<OnHost> on_host;
  if (receives ? transport_.receives_when_issued() : !is_late) on_host.emplace(*device_, id);
  PayloadPtr data;
  if (!receives && !is_late) data = give(id);
  note(id, FlightState::Issued);
  if (!is_late || !code(id).in_collective()) transport_.issue(rank_, id, std::move(data));
}

void RankRun::wait_for_inputs(InstructionId id) {
  for_each_input(program_, id, begin_, [this](InstructionId input) {
    wait_for(input);
    return true;
  });
}

void RankRun::wait_for(InstructionId input) {
  if (code(input).is_communication()) return finish_transfer(input);
  // Further down this very list: it can never come, and the transport knows it.
  if (record_.progress.ended[input] == 0) wait_in_transport(at(), input);
}

/// If the wait ends by Stopped, the rank stays on record as one that waits.
void RankRun::wait_in_transport(InstructionId id, InstructionId input) {
  waits_for_.store(input, std::memory_order_relaxed);
  if (recorder_.is_on()) {
    recorder_.note({id, FlightState::Waiting, input, transport_.now()});
    recorder_.settle(local::steady_ns());
  }
  transport_.wait(rank_, input);
  waits_for_.store(kNoInstruction, std::memory_order_relaxed);
}

void RankRun::finish_transfer(InstructionId id) {
  std::uint8_t& finished = finished_[id - begin_];
  if (finished != 0) return;
  wait_in_transport(at(), id);
  note(id, FlightState::Ended);
  if (is_recv(code(id).kind)) accept(id);
  if (code(id).in_collective()) device_->accept(id, nullptr);
  finished = 1;
}

void RankRun::accept(InstructionId recv) {
  std::optional<OnHost> on_host;
  if (!transport_.receives_when_issued()) on_host.emplace(*device_, recv);
  device_->accept(recv, checked(recv, transport_.take(rank_, recv)));
}

PayloadPtr RankRun::give(InstructionId send) {
  PayloadPtr payload = device_->give(send);
  auto* host = verify_payloads_ ? dynamic_cast<HostPayload*>(payload.get()) : nullptr;
  if (host != nullptr) host->checksum = checksum_of(*host);
  return payload;
}

PayloadPtr RankRun::checked(InstructionId recv, PayloadPtr payload) const {
  const auto* host = verify_payloads_ ? dynamic_cast<const HostPayload*>(payload.get()) : nullptr;
  if (host != nullptr && host->checksum != checksum_of(*host)) {
    const InstructionId send = code(recv).link;
    throw RunError("the message of rank " + std::to_string(program_.rank_of(send).value) + "'s " +
                   program_.text(send) + " was damaged on its way: its checksum is another one");
  }
  return payload;
}

bool RankRun::has_data(InstructionId send) const {
  if (code(send).has(Instruction::kOnComputeLane)) return true;  // walk() has waited for it
  // What it waits for among transfers and calls, the transport knows (TransferEnds::has_data()).
  return for_each_input(program_, send, begin_, [this](InstructionId input) {
    return code(input).is_communication() || record_.progress.ended[input] != 0;
  });
}

void RankRun::provide_late() {
  std::erase_if(late_, [&](InstructionId id) {
    if (!has_data(id)) return false;
    const OnHost on_host(*device_, id);
    PayloadPtr data = give(id);
    if (is_send(code(id).kind)) {
      transport_.provide(rank_, id, std::move(data));
    } else {
      transport_.issue(rank_, id, nullptr);
    }
    return true;
  });
}

}  // namespace pipewright::exec
