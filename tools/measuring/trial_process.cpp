#include "tools/measuring/trial_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "core/base/error.hpp"
#include "tools/cli/interrupt.hpp"

namespace pipewright::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGrace{5000};       // between SIGTERM and SIGKILL
constexpr milliseconds kLastOutput{1000};  // for what the shell has left in the pipe
constexpr int kPollMilliseconds = 50;

/// Only calls that are safe between fork and exec.
[[noreturn]] void become_shell(const char* command, int output) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);
  const int empty = open("/dev/null", O_RDONLY);
  dup2(empty, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  _exit(127);
}

/// The shell and all that it starts. Its end ends them.
class ShellGroup {
 public:
  explicit ShellGroup(const std::string& command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail();
    shell_ = fork();
    if (shell_ == 0) become_shell(command.c_str(), ends[1]);
    close(ends[1]);
    output_ = ends[0];
    if (shell_ < 0) {
      close(output_);
      fail();
    }
    setpgid(shell_, shell_);  // whichever of the two comes first
  }
  ~ShellGroup() {
    close(output_);
    kill(-shell_, SIGKILL);
    if (!has_ended()) waitpid(shell_, nullptr, 0);
  }
  ShellGroup(const ShellGroup&) = delete;
  ShellGroup& operator=(const ShellGroup&) = delete;

  /// Reads what there is; waits for it for a moment. False: nothing will come any more.
  bool read_some(OutputReader& reader) const {
    pollfd waiting{output_, POLLIN, 0};
    if (poll(&waiting, 1, kPollMilliseconds) <= 0) return true;
    std::array<char, 65536> bytes{};
    const ssize_t count = read(output_, bytes.data(), bytes.size());
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    reader.read({bytes.data(), static_cast<std::size_t>(count)});
    return count > 0;
  }

  bool has_ended() {
    if (ended_) return true;
    int status = 0;
    ended_ = waitpid(shell_, &status, WNOHANG) == shell_;
    if (ended_) status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended_;
  }
  int status() const { return status_; }

  void terminate() {
    kill(-shell_, SIGTERM);
    const auto until = Clock::now() + kGrace;
    while (!has_ended() && Clock::now() < until) usleep(kPollMilliseconds * 1000);
  }

 private:
  [[noreturn]] static void fail() {
    throw MachineError(std::string("the command of --measure cannot be started: ") +
                       std::strerror(errno));
  }

  pid_t shell_ = -1;
  int output_ = -1, status_ = 0;
  bool ended_ = false;
};

}  // namespace

TrialRun run_trial(const std::string& command, const std::vector<OutputPattern>& patterns,
                   Nanoseconds limit) {
  TrialRun run;
  OutputReader reader(patterns);
  const auto begin = Clock::now();
  {
    ShellGroup shell(command);
    bool more = true;
    while (!shell.has_ended()) {
      if (more) {
        more = shell.read_some(reader);
      } else {
        usleep(kPollMilliseconds * 1000);
      }
      run.timed_out =
          limit.value > 0 && Clock::now() - begin > std::chrono::nanoseconds(limit.value);
      if (!run.timed_out && !interrupt_flag()) continue;
      shell.terminate();
      break;
    }
    run.status = shell.has_ended() ? shell.status() : 128 + SIGKILL;
    const auto until = Clock::now() + kLastOutput;
    while (more && Clock::now() < until && !interrupt_flag()) more = shell.read_some(reader);
  }
  run.said = reader.finish();
  run.tail = reader.tail();
  run.took = Nanoseconds(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
  InterruptScope::check();
  return run;
}

}  // namespace pipewright::tools
