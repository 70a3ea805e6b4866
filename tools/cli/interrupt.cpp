#include "tools/cli/interrupt.hpp"

#include <unistd.h>
#include <csignal>

#include "core/base/unfinished_files.hpp"
#include "tools/cli/exit_status.hpp"

namespace pipewright::tools {
namespace {

// A signal handler has nothing but globals. All are lock-free.
std::atomic<bool> interrupted{false};
std::atomic<int> scopes{0};
std::atomic<bool> patient{false}, ignored{false};

extern "C" void on_signal(int /*number*/) {
  if (ignored.load()) return;
  if (scopes.load() == 0 || (interrupted.exchange(true) && !patient.load()))
    leave_at_once(kInterrupted);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // A command started with nohup, or in the background of a script, keeps ignoring the signal.
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
  // Then write() says why: the reader has gone, the file would grow beyond `ulimit -f`.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void leave_at_once(int status) noexcept {
  remove_unfinished_files();
  _exit(status);
}

const std::atomic<bool>& interrupt_flag() { return interrupted; }

void be_patient_with_signals() { patient.store(true); }

void ignore_signals() {
  ignored.store(true);
  interrupted.store(false);
}

InterruptScope::InterruptScope() { scopes.fetch_add(1); }
InterruptScope::~InterruptScope() { scopes.fetch_sub(1); }

void InterruptScope::check() {
  if (interrupted.load()) throw Interrupted();
}

}  // namespace pipewright::tools
