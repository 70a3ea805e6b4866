// Ctrl-C. Outside a scope it ends the process at once with status 130; inside one it only sets a
// flag, which the scope's owner looks at: that is how a run stops its ranks and a file is written
// whole or not at all.
#pragma once

#include <atomic>
#include <exception>

namespace pipewright::tools {

/// Unwinds to main, which exits with 130.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

/// Catches SIGINT, SIGTERM and SIGHUP for the rest of the process, ignores SIGPIPE and SIGXFSZ.
/// Called once, by main.
void install_signal_handlers();

/// Ends the process without waiting for anybody; no file under a temporary name stays. Also for
/// signal handlers.
[[noreturn]] void leave_at_once(int status) noexcept;

/// Set by the first signal that arrives inside a scope. The second one ends the process at once.
const std::atomic<bool>& interrupt_flag();

/// From now on a second signal is like the first. For a process of a job, which its launcher ends
/// in any case: the launcher may signal both the process and its group.
void be_patient_with_signals();
/// From now on signals change nothing, and those that came are forgotten. For a run over several
/// processes that has failed: the launcher now signals all of them, and those that are left still
/// have to report. They end by themselves.
void ignore_signals();

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  /// Throws Interrupted if a signal has arrived.
  static void check();
};

}  // namespace pipewright::tools
