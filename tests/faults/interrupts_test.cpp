// Signals at random moments of each phase of a run, with ranks as threads, as processes over
// sockets and under mpirun: documented exits and no others, every checkpoint that was finished is
// the one that an undisturbed run writes and goes on as that does, no file is half-written, nobody
// is left. PIPEWRIGHT_INTERRUPT_SEEDS=0:1000 tries more of them; a seed is always the same case,
// the moment is a share of what the phase takes here and now.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/reference/random_order.hpp"
#include "tests/support/interrupted_job.hpp"

namespace pipewright::test {
namespace interrupts_test {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int kStart = 3, kSaved = 12;  // steps: what is loaded, the most that is saved

/// `accumulated` micro-batches of two samples a step on two ranks.
std::string job(const std::string& accumulated, const std::string& batch, const std::string& plan) {
  return R"({"schema": "pipewright.job/1", "model": {"name": "small",
         "loss": "softmax_cross_entropy", "sequence": 8, "layers": [
         {"kind": "embedding", "vocabulary": 256, "out": 64}, {"kind": "linear", "out": 128},
         {"kind": "gelu"}, {"kind": "linear", "out": 256}]},
         "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": )" +
         batch + R"(, "strategy": {"pp_degree": 2, "accumulate_steps": )" + accumulated +
         R"(, "schedule_mode": "1f1b"},
         "training": {"steps": 6, "learning_rate": 0.01, "data": "text"}, "tuner_save_path": ")" +
         plan + R"("})";
}

struct Phase {
  const char* name;
  const char* words;  // of `pipewright`
};

const std::vector<Phase>& phases() {
  static const std::vector<Phase> all = {
      {"Build", "run job.json -q --numerics exact --steps 1"},
      {"Steps", "run plan.json -q --numerics exact --steps 150"},
      {"Verify", "run wide.json -q --numerics exact --verify --steps 1"},
      {"Save",
       "run plan.json -q --numerics exact --steps 12 --save-checkpoint saved --checkpoint-every 1 "
       "--keep-checkpoints 3"},
      {"Load",
       "run plan.json -q --numerics exact --steps 4 --load-checkpoint start --save-checkpoint "
       "saved"},
      {"Evaluate", "run plan.json -q --numerics exact --mode evaluate --load-checkpoint start"},
  };
  return all;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What the runs need, made once: plans, data, and all checkpoints of an undisturbed training.
class Bench {
 public:
  static const Bench& get() {
    static const Bench bench;
    return bench;
  }

  const Folder& folder() const { return folder_; }
  /// The checkpoint that a training which nobody disturbs has behind the step.
  fs::path undisturbed(int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", step);
    return folder_.path() / "all" / name;
  }

  /// A folder in which a run may be disturbed.
  void furnish(const Folder& into) const {
    for (const char* name : {"wide.json", "job.json", "text"})
      fs::copy(folder_.path() / name, into.path() / name);
    std::string plan = contents(folder_.path() / "plan.json");
    const std::string own = folder_.path().string();
    plan.replace(plan.find(own), own.size(), into.path().string());
    into.write("plan.json", plan);
    fs::create_directory_symlink(undisturbed(kStart), into.path() / "start");
  }

  /// What the phase takes if nobody disturbs it.
  std::chrono::microseconds time_of(std::size_t phase, JobKind kind) const {
    static std::map<std::pair<std::size_t, JobKind>, std::chrono::microseconds> known;
    const auto found = known.find({phase, kind});
    if (found != known.end()) return found->second;
    const Folder own;
    furnish(own);
    const EndedJob ended = run_interrupted(kind, phases()[phase].words, own, {});
    for (const int status : ended.statuses) EXPECT_EQ(status, 0) << ended.words;
    EXPECT_TRUE(ended.left_behind.empty());
    return known[{phase, kind}] = ended.took;
  }

 private:
  Bench() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the quick brown fox number " + std::to_string(i * i);
    folder_.write("text", text);
    folder_.write("job.json", job("4", "8", "plan.json"));
    folder_.write("wide-job.json", job("64", "512", "wide.json"));
    const CommandResult made = shell(
        "$PW tune job.json -q && $PW tune wide-job.json -q && $PW run plan.json -q --numerics "
        "exact --steps 14 --save-checkpoint all --checkpoint-every 1",
        folder_);
    if (made.status != 0) throw std::runtime_error(made.err);
  }

  Folder folder_;
};

struct Case {
  std::size_t phase = 0;
  JobKind kind = JobKind::Threads;
  Interruption interruption;
  double share = 0;  // of the phase's time

  std::string text() const {
    static const std::map<int, std::string> signals = {
        {SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGKILL, "KILL"}};
    static const char* const kinds[] = {"threads", "tcp", "mpi"};
    const int target = interruption.target;
    return std::string(phases()[phase].name) + " by " + kinds[static_cast<int>(kind)] + ", " +
           signals.at(interruption.signal) + " at " + std::to_string(share) + " to " +
           (target < 0 ? "all" : "rank " + std::to_string(target));
  }
};

/// Seeds of one phase are a stride apart.
Case case_of(int seed) {
  reference::Dice dice(static_cast<std::uint64_t>(seed));
  Case one;
  one.phase = static_cast<std::size_t>(seed) % phases().size();
  const bool has_mpi = !kSanitized && std::string(PIPEWRIGHT_MPIRUN) != "";
  const int kind = dice.below(100);
  one.kind = kind < 50 ? JobKind::Threads : kind < 85 || !has_mpi ? JobKind::Tcp : JobKind::Mpi;
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGKILL};
  one.interruption.signal = kSignals[dice.below(4)];
  if (one.kind != JobKind::Threads) one.interruption.target = dice.between(-1, 1);
  // Nobody outlives mpirun, but not by our doing.
  if (one.kind == JobKind::Mpi && one.interruption.signal == SIGKILL)
    one.interruption.target = std::max(0, one.interruption.target);
  one.share = dice.below(1000) / 1000.0;
  return one;
}

/// Statuses that docs/cli.md knows for a run that somebody disturbs; 3: whoever it had to meet did
/// not come.
bool is_documented(const Case& one, int status) {
  const bool killed = one.interruption.signal == SIGKILL;
  if (status == 0 || status == 130) return true;
  if (killed && status == 128 + SIGKILL) return true;
  if (one.kind == JobKind::Threads) return false;
  if (status == 3 || status == 4) return true;
  // mpirun ends those who are left, and does not always wait for them.
  const bool by_mpirun = status == -1 || status == 128 + SIGTERM || status == 128 + SIGKILL;
  return one.kind == JobKind::Mpi && by_mpirun;
}

/// How the tests of a phase went, for who reads the kept output.
struct Tally {
  std::map<int, int> statuses;
  int cases = 0, told = 0, checkpoints = 0, continued = 0;

  void print(const char* phase) const {
    std::printf("%s: %d interrupts, statuses", phase, cases);
    for (const auto& [status, count] : statuses) std::printf(" %d x %d", count, status);
    std::printf("; %d had to be told; %d finished checkpoints as they should be, %d continued\n",
                told, checkpoints, continued);
  }
};

void expect_clean_ending(const Case& one, const EndedJob& ended, Tally& tally) {
  for (const int status : ended.statuses) {
    ++tally.statuses[status];
    EXPECT_TRUE(is_documented(one, status)) << "status " << status;
  }
  for (const char* bad : {"terminate called", "Sanitizer", "runtime error", "DIFFER", "bug",
                          "what():", "Assertion"}) {
    EXPECT_EQ(ended.words.find(bad), std::string::npos) << bad;
  }
  for (const std::string& process : ended.left_behind) ADD_FAILURE() << "left behind: " << process;
  if (ended.was_told) ++tally.told;
}

/// Temporary names and locks below the folder.
std::vector<std::string> litter_in(const fs::path& folder) {
  std::vector<std::string> litter;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".tmp" || ending == ".lock") litter.push_back(entry.path().string());
  }
  return litter;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".tmp") names.insert(name);  // a SIGKILL may leave it
  }
  return names;
}

/// Byte for byte what the undisturbed training has written.
void expect_same_checkpoint(const fs::path& found, const fs::path& expected) {
  EXPECT_EQ(files_in(found), files_in(expected)) << found;
  for (const std::string& name : files_in(expected))
    EXPECT_EQ(contents(found / name) == contents(expected / name), true) << found / name;
}

/// Compares all that were finished; returns the newest one's step, 0 if there is none.
int newest_checkpoint(const fs::path& all, Tally& tally) {
  int newest = 0;
  if (!fs::exists(all)) return newest;
  for (const auto& entry : fs::directory_iterator(all)) {
    if (!fs::exists(entry.path() / "checkpoint.json")) continue;
    const int step = std::stoi(entry.path().filename().string().substr(5));
    expect_same_checkpoint(entry.path(), Bench::get().undisturbed(step));
    ++tally.checkpoints;
    newest = std::max(newest, step);
  }
  return newest;
}

/// The same command line again, as one who was interrupted gives it, in the same folder.
void expect_to_continue(const Folder& folder, int newest, Tally& tally) {
  const int steps = std::max(newest + 1, 2);
  const CommandResult result =
      pipewright("run plan.json -q --numerics exact --save-checkpoint saved --steps " +
                     std::to_string(steps) + (newest > 0 ? " --load-checkpoint saved" : ""),
                 folder);
  ASSERT_EQ(result.status, 0) << result.err;
  char name[32];
  std::snprintf(name, sizeof name, "step-%08d", steps);
  expect_same_checkpoint(folder.path() / "saved" / name, Bench::get().undisturbed(steps));
  EXPECT_EQ(litter_in(folder.path() / "saved"), std::vector<std::string>());
  for (const auto& entry : fs::directory_iterator(folder.path() / "saved"))
    EXPECT_TRUE(fs::exists(entry.path() / "checkpoint.json")) << entry.path();
  ++tally.continued;
}

/// A run that searches, and measures for it, writes the plan again.
void expect_whole_plan(const Folder& folder) {
  const CommandResult read = pipewright("check plan.json -q", folder);
  EXPECT_EQ(read.status, 0) << read.err;
}

void interrupt_and_look(int seed, Tally& tally) {
  Case one = case_of(seed);
  const Bench& bench = Bench::get();
  const auto time = bench.time_of(one.phase, one.kind);
  one.interruption.after = std::chrono::microseconds(
      static_cast<std::int64_t>(static_cast<double>(time.count()) * one.share));
  const Folder folder;
  bench.furnish(folder);
  const EndedJob ended =
      run_interrupted(one.kind, phases()[one.phase].words, folder, one.interruption);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + one.text() + ", after " +
               std::to_string(one.interruption.after.count()) + " us\n" + ended.words);
  ++tally.cases;
  expect_clean_ending(one, ended, tally);
  expect_whole_plan(folder);
  const bool may_litter = one.interruption.signal == SIGKILL || one.kind == JobKind::Mpi;
  if (!may_litter) {
    EXPECT_EQ(litter_in(folder.path()), std::vector<std::string>());
  }
  if (std::string(phases()[one.phase].words).find("--save") == std::string::npos) return;
  expect_to_continue(folder, newest_checkpoint(folder.path() / "saved", tally), tally);
}

/// From and behind the last.
std::pair<int, int> seeds() {
  const char* wanted = std::getenv("PIPEWRIGHT_INTERRUPT_SEEDS");
  const std::string range = wanted != nullptr ? wanted : "0:60";
  const std::size_t colon = range.find(':');
  return {std::stoi(range.substr(0, colon)), std::stoi(range.substr(colon + 1))};
}

class Interrupts : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Phases, Interrupts, testing::Range(std::size_t{0}, phases().size()),
                         [](const auto& one) { return phases()[one.param].name; });

TEST_P(Interrupts, EndAsDocumentedAndLeaveNothingHalfDone) {
  Tally tally;
  const auto [first, end] = seeds();
  for (int seed = first; seed < end && !HasFatalFailure(); ++seed) {
    if (static_cast<std::size_t>(seed) % phases().size() == GetParam())
      interrupt_and_look(seed, tally);
  }
  tally.print(phases()[GetParam()].name);
}

}  // namespace interrupts_test
}  // namespace pipewright::test
