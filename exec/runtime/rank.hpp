// One rank of a run: walks its list of the Program in program order, computes on its device and
// issues its transfer ends (docs/semantics.md §2, §3). Belongs to the rank's thread; what others
// may look at, and when, is said where it stands.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/device.hpp"
#include "exec/runtime/flight_recorder.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

/// What the ranks of a run write together: each its own instructions, so without a lock. To be read
/// while all ranks stand still; while they run, with copy_to().
struct Record {
  Timeline timeline;
  Progress progress;
  // Read at any time:
  std::atomic<std::uint64_t> computations{0};  // ended since the run began
  std::atomic<bool> between_steps{true};       // preparing or looking at a step: no progress then
  std::atomic<bool> failed{false};             // a rank, or the caller's on_step, has thrown

  /// Nothing has happened.
  void reset(std::size_t instructions);
  /// What has been written so far, while ranks write on. Not while reset() runs.
  void copy_to(Timeline& timeline, Progress& progress);
};

/// Where a rank stands, as any thread sees it.
struct Standing {
  enum class Phase : std::uint8_t { Preparing, Walking, Done };
  Phase phase = Phase::Preparing;
  InstructionId at = kNoInstruction;
  InstructionId waits_for = kNoInstruction;  // kNoInstruction: it waits for nothing, so it works
  std::int64_t settled_ns = 0;  // since when, on the steady clock; 0: no recorder, or not begun
};

class RankRun {
 public:
  /// All of them must outlive it.
  RankRun(const Program& program, RankId rank, Transport& transport, Record& record,
          std::size_t flight_entries = 0, bool verify_payloads = false);

  /// One step, from the first instruction to the end of the last. Throws Stopped, and what the
  /// device throws.
  void walk(Device& device);

  /// Any thread.
  InstructionId at() const { return at_.load(std::memory_order_relaxed); }
  Standing standing() const;
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  void stand_at(InstructionId id) { at_.store(id, std::memory_order_relaxed); }
  void note(InstructionId id, FlightState state);

  void compute(InstructionId id);
  void compute_on_device(InstructionId id);
  void issue(InstructionId id);
  void stop_behind_host(InstructionId id);
  void wait_for_inputs(InstructionId id);
  void wait_for(InstructionId input);
  void wait_in_transport(InstructionId id, InstructionId input);
  void finish_transfer(InstructionId id);
  bool has_data(InstructionId id) const;
  void provide_late();
  void accept(InstructionId recv);
  PayloadPtr give(InstructionId send);
  PayloadPtr checked(InstructionId recv, PayloadPtr payload) const;

  const Program& program_;
  const RankId rank_;
  Transport& transport_;
  Record& record_;
  const InstructionId begin_, end_;
  Device* device_ = nullptr;
  std::vector<std::uint8_t> finished_;       // communication, from begin_: waited for and accepted
  std::vector<InstructionId> late_;          // reached before their inputs have ended
  const std::vector<InstructionId> places_;  // places_in_flight()
  FlightRecorder recorder_;
  const bool verify_payloads_;
  std::atomic<Standing::Phase> phase_{Standing::Phase::Preparing};
  std::atomic<InstructionId> at_;
  std::atomic<InstructionId> waits_for_{kNoInstruction};
};

}  // namespace pipewright::exec
