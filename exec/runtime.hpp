// Runs a Program: one thread a rank, each walking its list on its device, with a watchdog over all.
// The order, the waits and the outcome are the Program's (docs/semantics.md); the runtime adds
// none. When run() returns or throws, every thread it started has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/costs.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "core/wait_for.hpp"
#include "exec/device.hpp"
#include "exec/transport.hpp"
#include "exec/verify.hpp"

namespace pipewright::exec {

struct StepResult {
  std::optional<double> loss;  // nullopt if no device computes one
  std::int64_t step_ns = 0;    // from the step's start to the end of its last instruction
};

struct RunOptions {
  int steps = 1;
  /// Steps at the beginning that train like the others but are not picked for `timeline`; the
  /// last step always may be.
  int warm_up_steps = 1;
  /// How long nothing may end before the run is given up. A run in which nothing can happen any
  /// more is ended at once, whatever this says.
  std::int64_t watchdog_ns = 30'000'000'000;
  /// Set from outside (a signal handler) to end the run; may be null.
  const std::atomic<bool>* interrupted = nullptr;
  /// Keep the step whose time is the median; otherwise the last one, which needs less memory.
  bool median_timeline = true;
  /// Called after each step, on one rank's thread, while all ranks stand still. What it throws ends
  /// the run and comes out of run().
  std::function<void(int step, const StepResult& result)> on_step;
};

enum class Outcome : std::uint8_t { Finished, Stuck, Interrupted };

struct RunResult {
  Outcome outcome = Outcome::Finished;
  std::vector<StepResult> steps;  // those that ended
  /// Finished: the step `timeline_step`. Else what there is of the step that did not end.
  Timeline timeline;
  int timeline_step = 0;
  Figures figures;                     // of the timeline; only if finished
  WaitReport stuck;                    // only if stuck: why
  Progress progress;                   // only if not finished: how far it came
  std::optional<VerifyReport> verify;  // filled by run_on_cpu() if it was asked to
  /// By rank, filled by run_on_cpu(): the most versions of a stage's weights that lived at once.
  std::vector<int> peak_weight_versions;

  bool finished() const { return outcome == Outcome::Finished; }
};

/// `costs` gives message sizes (credit in bytes) and memory for the figures. The transport serves
/// one run. Throws RunError if a rank fails (naming rank, instruction and step) or if one computes
/// for longer than the watchdog allows.
RunResult run(const Program& program, const CostTable& costs, Transport& transport,
              const DeviceFactory& make_device, const RunOptions& options = {});

}  // namespace pipewright::exec
