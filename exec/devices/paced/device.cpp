#include "exec/devices/paced/device.hpp"

#include <cstring>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "exec/base/random.hpp"

namespace pipewright::exec::paced {
namespace {

constexpr std::size_t kPatternFloats = 16;

/// Numbers that depend on every part of the label.
std::vector<float> pattern_of(const Label& label) {
  std::uint64_t key = key_of(label.sequence, static_cast<std::uint64_t>(label.kind));
  for (const std::int64_t part : {std::int64_t{label.stage}, std::int64_t{label.micro_batch},
                                  std::int64_t{label.version}, std::int64_t{label.step}}) {
    key = key_of(key, static_cast<std::uint64_t>(part));
  }
  std::vector<float> pattern(kPatternFloats);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = symmetric_uniform(key, i);
  return pattern;
}

std::vector<std::byte> note_of(const Label& label) {
  std::vector<std::byte> note(sizeof label);
  std::memcpy(note.data(), &label, sizeof label);
  return note;
}

std::string text_of(const Label& label) {
  const Action action{.kind = label.kind,
                      .stage = StageId(label.stage),
                      .micro_batch = MicroBatchId(label.micro_batch),
                      .version = label.version};
  return to_string(action) + " of step " + std::to_string(label.step);
}

}  // namespace

Device::Device(const Program& program, const CostTable& costs, RankId rank, Clock& clock)
    : program_(program), costs_(costs), rank_(rank), clock_(clock) {}

void Device::begin_step(int step) {
  step_ = step;
  sent_ = 0;
}

void Device::compute(InstructionId id) {
  const std::int64_t start = clock_.now();
  const Nanoseconds time = costs_.duration(program_, id);
  if (time.value > 0) clock_.sleep_until(rank_, start + time.value);
}

PayloadPtr Device::give(InstructionId send) {
  if (program_.code[send].in_collective()) return nullptr;  // nothing to sum
  Label label = label_of(send);
  label.sequence = sent_++;
  return std::make_unique<HostPayload>(pattern_of(label), note_of(label));
}

void Device::accept(InstructionId recv, PayloadPtr payload) {
  if (program_.code[recv].in_collective()) return;
  const auto* message = dynamic_cast<const HostPayload*>(payload.get());
  Label label;
  if (message == nullptr || message->note.size() != sizeof label) {
    throw RunError("received a message that no paced device has sent");
  }
  std::memcpy(&label, message->note.data(), sizeof label);
  Label wanted = label_of(recv);
  wanted.sequence = label.sequence;
  if (wanted.version < 0 || label.version < 0) wanted.version = label.version;
  if (label != wanted) {
    throw RunError("received " + text_of(label) + " instead of " + text_of(wanted));
  }
  if (message->values != pattern_of(label)) {
    throw RunError("the content of " + text_of(label) + " was damaged on its way");
  }
}

/// Of a SEND or a RECV: the label of what it carries.
Label Device::label_of(InstructionId id) const {
  const Instruction& in = program_.code[id];
  if (is_call(in.kind)) {
    // Two calls that meet may say their sizes differently; the SEND's number stands for both.
    const Instruction& send = is_send(in.kind) ? in : program_.code[in.link];
    return {.kind = send.kind, .micro_batch = send.micro_batch, .step = step_};
  }
  const bool activation = in.kind == ActionKind::SendF || in.kind == ActionKind::RecvF;
  Label label;
  label.kind = activation ? ActionKind::SendF : ActionKind::SendB;
  label.stage = in.stage;
  if (is_recv(in.kind)) label.stage += activation ? -1 : 1;
  label.micro_batch = in.micro_batch;
  if (!program_.versions.empty()) label.version = program_.versions[id];
  label.step = step_;
  return label;
}

RunResult run_paced(const Program& program, const CostTable& costs, local::ClockKind clock,
                    const RunOptions& options) {
  local::LocalTransport transport(program, local::paced_messages(program, costs), clock);
  return run_paced(program, costs, options, transport);
}

RunResult run_paced(const Program& program, const CostTable& costs, const RunOptions& options,
                    Transport& transport) {
  const DeviceFactory make = [&](RankId rank, Clock& time) {
    return std::make_unique<Device>(program, costs, rank, time);
  };
  return run(program, costs, transport, make, options);
}

}  // namespace pipewright::exec::paced
