// Runs a Program: one thread a rank, each walking its list on its device, with a watchdog over all.
// The order, the waits and the outcome are the Program's (docs/semantics.md); the runtime adds
// none. When run() returns or throws, every thread it started has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/runtime/device.hpp"
#include "exec/runtime/flight_report.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/runtime/step_log.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

struct RunResult;

struct RunOptions {
  int steps = 1;
  int first_step = 0;  // steps of the training before this run
  /// Steps at the beginning that train like the others but are not picked for `timeline`; the
  /// last step always may be.
  int warm_up_steps = 1;
  /// How long nothing may end before the run is given up. A run in which nothing can happen any
  /// more is ended at once, whatever this says.
  std::int64_t watchdog_ns = 30'000'000'000;
  /// Set from outside (a signal handler) to end the run; may be null.
  const std::atomic<bool>* interrupted = nullptr;
  /// Keep the step whose time is the median (exec/runtime/shown_step.hpp); otherwise the last one,
  /// which needs less memory.
  bool median_timeline = true;
  /// Called after each step whose numbers are finite, on one rank's thread, while all ranks stand
  /// still. What it throws ends the run and comes out of run().
  std::function<void(int step, const StepResult& result)> on_step;
  /// What each rank did last is kept for the report of a run that does not finish: so many entries
  /// a rank, of 16 bytes; 0: none.
  int flight_entries = kDefaultFlightEntries;
  /// Called on a thread of the runtime if ranks have not left so long after the run was given up or
  /// interrupted, because a device does not return. Whoever cannot wait ends the process there; if
  /// it returns, run() goes on waiting for the ranks.
  std::int64_t grace_ns = 1'000'000'000;
  std::function<void(const RunResult& result)> on_overdue;
  /// Every message carries a checksum, which the receiver compares (exec/base/checksum.hpp).
  bool verify_payloads = false;
};

enum class Outcome : std::uint8_t {
  Finished,
  Stuck,  // nothing, or nothing of a cycle, can ever happen again
  Interrupted,
  Slow,      // the watchdog's patience ended while a rank computed, or data moved
  Failed,    // a rank has thrown
  Diverged,  // a step's loss, or what a rank is left with after it, is not finite
};
std::string_view to_string(Outcome outcome);  // "finished", …

/// Of any run; what computes adds what it knows (exec/training/training_result.hpp).
struct RunResult {
  Outcome outcome = Outcome::Finished;
  StepLog steps;       // those that ended; diverged: that step is the last one
  int first_step = 0;  // as in RunOptions
  /// Finished or diverged: the step `timeline_step`. Else what there is of the step that did not
  /// end.
  Timeline timeline;
  int timeline_step = 0;
  Figures figures;      // of the timeline; only if finished or diverged
  WaitReport stuck;     // only if stuck: why
  Progress progress;    // only if not finished: how far it came
  FlightReport report;  // only if not finished: rank by rank
  std::string failure;  // only if slow, failed or diverged: the sentence that run() throws
  /// Failed, but not here. peer_lost: a process is gone. by_others: another process has failed, and
  /// `failure` holds no more than what that one has said.
  bool peer_lost = false, by_others = false;
  /// By process, where there are several: how far the times of a process may be off.
  std::vector<ClockError> clocks;

  bool finished() const { return outcome == Outcome::Finished; }
};

/// A run that failed, was too slow or diverged, with what there is of it.
class RunFailed : public RunError {
 public:
  explicit RunFailed(RunResult result)
      : RunError(result.failure), result_(std::make_shared<const RunResult>(std::move(result))) {}
  const RunResult& result() const { return *result_; }

 private:
  std::shared_ptr<const RunResult> result_;
};

/// `costs` gives message sizes (credit in bytes) and memory for the figures. The transport serves
/// one run. Where the ranks are several processes, all of them call this alike; each gets the whole
/// result of a run that finishes, and process 0 that of one that does not. Throws RunFailed if a
/// rank fails (naming rank, instruction and step), if one computes for longer than the watchdog
/// allows, and, in every process alike, after a step whose numbers are not finite.
RunResult run(const Program& program, const CostTable& costs, Transport& transport,
              const DeviceFactory& make_device, const RunOptions& options = {});

}  // namespace pipewright::exec
