// A device that computes nothing and takes exactly the time of the cost table for it: real threads,
// real waits and real messages, with known durations. What it sends says what it is and carries a
// pattern; what it receives is checked, and anything wrong is a RunError.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "exec/runtime/device.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/transports/local/transport.hpp"

namespace pipewright::exec::paced {

/// What a message says of itself: the note of its payload.
struct Label {
  ActionKind kind = ActionKind::SendF;  // SendF: an activation; SendB: a gradient
  int stage = 0;                        // that produced it
  std::uint32_t micro_batch = 0;
  std::int32_t version = -1;
  int step = 0;
  std::uint64_t sequence = 0;  // of this rank's messages in the step

  bool operator==(const Label&) const = default;
};

class Device final : public exec::Device {
 public:
  /// All of them must outlive it.
  Device(const Program& program, const CostTable& costs, RankId rank, Clock& clock);

  void begin_step(int step) override;
  void compute(InstructionId id) override;
  PayloadPtr give(InstructionId send) override;
  void accept(InstructionId recv, PayloadPtr payload) override;
  void end_step() override {}

 private:
  Label label_of(InstructionId id) const;

  const Program& program_;
  const CostTable& costs_;
  const RankId rank_;
  Clock& clock_;
  int step_ = 0;
  std::uint64_t sent_ = 0;
};

/// A step of the Program under the cost table's times, on this machine's threads. Under the virtual
/// clock the timeline equals the simulator's to the nanosecond, as long as links are not shared.
RunResult run_paced(const Program& program, const CostTable& costs, local::ClockKind clock,
                    const RunOptions& options = {});
/// The same on another transport; process by process where its ranks are several.
RunResult run_paced(const Program& program, const CostTable& costs, const RunOptions& options,
                    Transport& transport);

}  // namespace pipewright::exec::paced
