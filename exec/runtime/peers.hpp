// The other processes of a run, as the runtime sees them: how what each of them knows comes
// together, and how one learns that another has ended the run or is gone. Process 0 collects,
// judges whether the run goes on, and speaks to the user. Owned by the Transport.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "exec/base/packing.hpp"

namespace pipewright::exec {

/// A rank whose process is gone.
struct LostRank {
  RankId rank;
  std::string how;            // "its process 4711 on host a has ended"
  bool has_given_up = false;  // by an error of its own, which `how` is
};

/// Why a process has ended the run for all.
struct EndOfRun {
  std::string why;       // "" where there is no more to say than its last look
  bool by_loss = false;  // another process is gone
};

/// How far a process's clock may be off in the timeline.
struct ClockError {
  std::int64_t offset_ns = 0;  // of its clock to that of process 0, when the run began
  std::int64_t drift_ns = 0;   // what this has changed by until the end
  std::int64_t bound_ns = 0;   // the largest error of either
};

class Peers {
 public:
  virtual ~Peers() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  /// What each process brings, by process, in every one of them. All call it, in the same order,
  /// while their ranks stand still. Throws Stopped.
  virtual std::vector<PackedBytes> share(PackedBytes own) = 0;

  /// By process; all call it, after the last step. Throws Stopped.
  virtual std::vector<ClockError> clocks() = 0;

  // For the watchdog, any thread.

  /// Of this process: what has ended since the run began. Process 0 learns it.
  virtual void post_progress(std::uint64_t ended) = 0;
  /// In process 0: what the others have posted.
  virtual std::uint64_t progress_elsewhere() const = 0;
  /// Another process has ended the run.
  virtual bool ended_elsewhere() const = 0;
  virtual EndOfRun end_elsewhere() const = 0;
  /// Ranks whose process has ended, or, where nothing can tell that, has been silent for longer
  /// than `silence_ns` and than a few seconds. Waits a moment where that is not settled yet.
  virtual std::vector<LostRank> lost(std::int64_t silence_ns) = 0;

  /// A run that does not finish: each process hands in what it saw before its ranks left, and what
  /// stop() is to tell the others. Any thread, never waits.
  virtual void hand_in(PackedBytes final_state, EndOfRun end) noexcept = 0;
  /// In process 0: what the others have handed in, waiting at most so long; nothing from those
  /// that are gone. Elsewhere empty.
  virtual std::vector<PackedBytes> handed_in(std::int64_t timeout_ns) = 0;
};

}  // namespace pipewright::exec
