// One rank of a run: walks its list of the Program in program order, computes on its device and
// issues its transfer ends (docs/semantics.md §2, §3). Belongs to the rank's thread; what others
// may look at, and when, is said where it stands.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/program.hpp"
#include "core/timeline.hpp"
#include "core/wait_for.hpp"
#include "exec/device.hpp"
#include "exec/transport.hpp"

namespace pipewright::exec {

/// What the ranks of a run write together: each its own instructions, so without a lock. To be read
/// while all ranks stand still.
struct Record {
  Timeline timeline;
  Progress progress;
  // Read at any time:
  std::atomic<std::uint64_t> computations{0};  // ended since the run began
  std::atomic<bool> between_steps{true};       // preparing or looking at a step: no progress then

  /// Nothing has happened.
  void reset(std::size_t instructions);
};

class RankRun {
 public:
  /// All of them must outlive it.
  RankRun(const Program& program, RankId rank, Transport& transport, Record& record);

  /// One step, from the first instruction to the end of the last. Throws Stopped, and what the
  /// device throws.
  void walk(Device& device);

  /// Where the rank stands, and whether it computes there. Any thread.
  InstructionId at() const { return at_.load(std::memory_order_relaxed); }
  bool computes() const { return computes_.load(std::memory_order_relaxed); }

 private:
  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  void stand_at(InstructionId id) { at_.store(id, std::memory_order_relaxed); }

  void compute(InstructionId id);
  void issue(InstructionId id);
  void wait_for_inputs(InstructionId id);
  void wait_for_run_before(InstructionId id);
  void wait_for(InstructionId input);
  void finish_transfer(InstructionId id);
  bool has_data(InstructionId send) const;
  void provide_late_sends();

  const Program& program_;
  const RankId rank_;
  Transport& transport_;
  Record& record_;
  const InstructionId begin_, end_;
  Device* device_ = nullptr;
  std::vector<std::uint8_t> finished_;     // transfer ends, from begin_: waited for and accepted
  std::vector<InstructionId> awaited_;     // own computations that other ranks wait for, sorted
  std::vector<InstructionId> late_sends_;  // issued before their data was computed
  std::atomic<InstructionId> at_;
  std::atomic<bool> computes_{false};
};

}  // namespace pipewright::exec
