#include "tests/support/interrupted_job.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace pipewright::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 2;
// What leaves at all leaves sooner, on a busy machine and under a sanitizer, too.
constexpr seconds kBeforeTelling{10}, kBeforeKilling{60};

// A rank whose status can be read afterwards, whatever mpirun does to it meanwhile. The command
// runs in the foreground: "wait" could end with the signal's status after the command is gone.
constexpr const char* kRankOfMpi = R"(trap : INT TERM HUP
export r=$OMPI_COMM_WORLD_RANK
sh -c 'echo $$ >"$NOTES/new.$r"; mv "$NOTES/new.$r" "$NOTES/pid.$r"; exec "$PW" "$@"' sh "$@"
s=$?
echo $s >"$NOTES/new.$r"; mv "$NOTES/new.$r" "$NOTES/status.$r"
exit $s
)";

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int number_in(const fs::path& path, int otherwise) {
  std::ifstream file(path);
  int number = otherwise;
  file >> number;
  return number;
}

int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Whether the process has a handler for SIGTERM; not ignoring it is not enough.
bool catches_signals(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
  }
  return false;
}

/// The processes that run in the folder.
std::vector<std::string> processes_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    if (fs::read_symlink(entry.path() / "cwd", ignored) != folder) continue;
    std::string line = contents(entry.path() / "cmdline");
    for (char& c : line) c = c == '\0' ? ' ' : c;
    found.push_back(entry.path().filename().string() + ": " + line);
  }
  return found;
}

class Job {
 public:
  Job(JobKind kind, const std::string& words, const Folder& folder)
      : kind_(kind), folder_(folder.path()) {
    for (int r = 0; r < (kind == JobKind::Tcp ? kRanks : 1); ++r) start(words, r);
  }

  /// Until every process of ours catches signals, or has ended: before that it is a shell.
  void await_command() {
    while (!update() && !all_catch_signals())
      std::this_thread::sleep_for(std::chrono::microseconds(500));
  }

  /// Looks whether all have ended until then.
  bool ends_by(Clock::time_point until) {
    while (!update()) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    return true;
  }

  void signal(int number, int target) {
    if (kind_ == JobKind::Mpi && target >= 0) {
      const int pid = number_in(notes_.path() / ("pid." + std::to_string(target)), 0);
      if (pid > 0) ::kill(pid, number);
      return;
    }
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const bool meant = kind_ != JobKind::Tcp || target < 0 || target == static_cast<int>(i);
      if (meant && !processes_[i].ended) ::kill(processes_[i].pid, number);
    }
  }

  void kill_all() {
    signal(SIGKILL, -1);
    for (int r = 0; kind_ == JobKind::Mpi && r < kRanks; ++r) signal(SIGKILL, r);
  }

  std::vector<int> statuses() const {
    std::vector<int> statuses;
    if (kind_ != JobKind::Mpi) {
      for (const Process& process : processes_) statuses.push_back(shell_status(process.status));
      return statuses;
    }
    for (int r = 0; r < kRanks; ++r)
      statuses.push_back(number_in(notes_.path() / ("status." + std::to_string(r)), -1));
    return statuses;
  }

  std::string words() const {
    std::string all;
    for (std::size_t i = 0; i < processes_.size(); ++i)
      all += contents(notes_.path() / ("words." + std::to_string(i)));
    return all;
  }

 private:
  struct Process {
    pid_t pid = 0;
    int status = 0;
    bool ended = false;
  };

  bool all_catch_signals() const {
    if (kind_ == JobKind::Mpi) {
      for (int r = 0; r < kRanks; ++r) {
        const int pid = number_in(notes_.path() / ("pid." + std::to_string(r)), 0);
        if (pid == 0 || !catches_signals(pid)) return false;
      }
      return true;
    }
    return std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
      return process.ended || catches_signals(process.pid);
    });
  }

  void start(const std::string& words, int rank) {
    std::ostringstream script;
    script << "cd '" << folder_.string() << "' && export LANG=C.UTF-8 NOTES='"
           << notes_.path().string() << "' PW='" << PIPEWRIGHT_COMMAND << "' && ";
    if (kind_ == JobKind::Tcp) {
      script << "export PIPEWRIGHT_RANK=" << rank << " PIPEWRIGHT_LOCAL_RANK=" << rank
             << " PIPEWRIGHT_WORLD_SIZE=" << kRanks << " PIPEWRIGHT_RENDEZVOUS=file://"
             << notes_.path().string() << "/job && exec \"$PW\" " << words << " --transport tcp";
    } else if (kind_ == JobKind::Mpi) {
      std::ofstream(notes_.path() / "rank") << kRankOfMpi;
      script << "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 && exec '"
             << PIPEWRIGHT_MPIRUN << "' --oversubscribe -np " << kRanks << " sh '"
             << notes_.path().string() << "/rank' " << words << " --transport mpi";
    } else {
      script << "exec \"$PW\" " << words;
    }
    const std::string text = script.str();
    const std::string out = (notes_.path() / ("words." + std::to_string(rank))).string();
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child == 0) {
      const int into = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, STDIN_FILENO);
      dup2(into, STDOUT_FILENO);
      dup2(into, STDERR_FILENO);
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
      execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
      _exit(127);
    }
    processes_.push_back({.pid = child});
  }

  bool update() {
    bool all = true;
    for (Process& process : processes_) {
      if (!process.ended)
        process.ended = waitpid(process.pid, &process.status, WNOHANG) == process.pid;
      all = all && process.ended;
    }
    return all;
  }

  const JobKind kind_;
  const fs::path folder_;
  const Folder notes_;
  std::vector<Process> processes_;
};

}  // namespace

EndedJob run_interrupted(JobKind kind, const std::string& words, const Folder& folder,
                         const Interruption& interruption) {
  Job job(kind, words, folder);
  job.await_command();
  const auto begin = Clock::now();
  EndedJob ended;
  bool over = false;
  if (interruption.signal != 0) {
    over = job.ends_by(begin + interruption.after);
    if (!over) job.signal(interruption.signal, interruption.target);
  }
  if (!over) over = job.ends_by(Clock::now() + kBeforeTelling);
  if (!over && interruption.signal != 0) {
    ended.was_told = true;
    job.signal(SIGTERM, -1);
  }
  if (!over) over = job.ends_by(Clock::now() + kBeforeKilling);
  ended.took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  // mpirun may be gone a moment before its ranks.
  for (int look = 0; look < 100; ++look) {
    ended.left_behind = processes_in(folder.path());
    if (ended.left_behind.empty()) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  if (!ended.left_behind.empty()) job.kill_all();
  job.ends_by(Clock::now() + kBeforeTelling);
  ended.statuses = job.statuses();
  ended.words = job.words();
  return ended;
}

}  // namespace pipewright::test
