// Long runs hold no more memory than short ones. What grows with each step is found by looking at
// the processes of a run from outside, a tenth of the way and near its end. PIPEWRIGHT_LONG_RUN
// says how many steps (`scripts/prove long-runs`: a million).
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace long_runs_test {

constexpr long kMostGrowth = 1024;  // KiB

/// Of a run, or fewer where each takes long.
int steps_or(int otherwise) {
  const char* wanted = std::getenv("PIPEWRIGHT_LONG_RUN");
  return wanted == nullptr ? otherwise : std::atoi(wanted);
}

struct Reading {
  int step = 0;
  std::vector<long> resident;  // KiB, by process
};

/// KiB; 0 if the process is not there any more.
long resident_of(const std::filesystem::path& pid_file) {
  int pid = 0;
  std::ifstream(pid_file) >> pid;
  std::ifstream memory("/proc/" + std::to_string(pid) + "/statm");
  long size = 0, resident = 0;
  memory >> size >> resident;
  return pid == 0 ? 0 : resident * (sysconf(_SC_PAGESIZE) / 1024);
}

class LongRun : public testing::Test {
 protected:
  /// Runs a shell line in which process R leaves its number in pid.R ($BEGIN R WORDS does that and
  /// becomes `pipewright run WORDS`), and reads the memory of all at each line of a step.
  std::vector<Reading> watch(const std::string& line, int processes) {
    folder_.write("begin", "#!/bin/sh\necho $$ >pid.$1; shift\nexec \"$PW\" run \"$@\"\n");
    const std::string script = "cd '" + folder_.path().string() + "' && export PW='" +
                               PIPEWRIGHT_COMMAND +
                               "' BEGIN='sh ./begin' OMPI_ALLOW_RUN_AS_ROOT=1 "
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; " +
                               line;
    std::vector<Reading> readings;
    FILE* out = popen(script.c_str(), "r");
    char text[512];
    while (out != nullptr && std::fgets(text, sizeof text, out) != nullptr) {
      Reading reading;
      const bool of_result = std::strstr(text, "is shown") != nullptr;
      if (of_result || std::sscanf(text, "step %d ", &reading.step) != 1) continue;
      for (int p = 0; p < processes; ++p)
        reading.resident.push_back(resident_of(folder_.path() / ("pid." + std::to_string(p))));
      bool all_there = true;
      for (const long one : reading.resident) all_there = all_there && one > 0;
      if (all_there) readings.push_back(reading);
    }
    EXPECT_EQ(pclose(out), 0) << line;
    return readings;
  }

  /// Lines come by the clock: a machine that is done before there are enough takes more steps.
  void expect_level(const std::function<std::string(int)>& line_of, int steps, int processes = 1) {
    constexpr int kMostSteps = 50'000'000;
    std::vector<Reading> readings;
    std::size_t tenth = 0;
    for (;; steps *= 4) {
      readings = watch(line_of(steps), processes);
      ASSERT_FALSE(readings.empty());
      tenth = 0;
      while (readings[tenth].step < steps / 10 && tenth + 1 < readings.size()) ++tenth;
      if (readings.back().step >= 2 * readings[tenth].step) break;
      ASSERT_LT(steps, kMostSteps) << "too few lines to see anything";
    }
    const Reading &first = readings[tenth], &last = readings.back();
    for (std::size_t p = 0; p < first.resident.size(); ++p) {
      std::printf("process %zu: %ld KiB after %d steps, %ld KiB after %d\n", p, first.resident[p],
                  first.step, last.resident[p], last.step);
      EXPECT_LE(last.resident[p] - first.resident[p], kMostGrowth) << "process " << p;
    }
  }

  const Folder folder_;
};

/// job.json, text and plan.json of a model so small that a million of its steps take minutes.
CommandResult write_tiny_job(const Folder& folder) {
  folder.write("text", std::string(200, 'a') + std::string(200, 'b'));
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": {"name": "tiny",
      "loss": "softmax_cross_entropy", "sequence": 2, "layers": [
      {"kind": "embedding", "vocabulary": 256, "out": 4}, {"kind": "gelu"},
      {"kind": "linear", "out": 256}]},
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 2,
      "strategy": {"pp_degree": 2, "accumulate_steps": 2, "schedule_mode": "1f1b"},
      "training": {"learning_rate": 0.01, "data": "text"}, "tuner_save_path": "plan.json"})");
  return pipewright("tune job.json -q", folder);
}

std::string small_order(int steps) {
  return "-s 1f1b -p 2 -m 2 --cost F=1us,B=2us --steps " + std::to_string(steps);
}

/// Of processes that meet by their environment.
std::string over_tcp(const std::string& words) {
  const std::string job =
      "rm -rf meet; export PIPEWRIGHT_WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=file://$PWD/meet; ";
  return job + "PIPEWRIGHT_RANK=1 $BEGIN 1 " + words + " --transport tcp & PIPEWRIGHT_RANK=0 " +
         "$BEGIN 0 " + words + " --transport tcp; s=$?; wait $! && exit $s";
}

std::string over_mpi(const std::string& words) {
  return std::string(PIPEWRIGHT_MPIRUN) +
         " --oversubscribe -np 2 sh -c 'exec $BEGIN $OMPI_COMM_WORLD_RANK \"$@\"' - " + words +
         " --transport mpi";
}

TEST_F(LongRun, OfThreadsHoldsItsMemory) {
  expect_level([](int steps) { return "$BEGIN 0 " + small_order(steps) + " --clock virtual"; },
               steps_or(30'000));
}

TEST_F(LongRun, OfManyMicroBatchesHoldsItsMemory) {
  const std::string words = "$BEGIN 0 -s 1f1b -p 4 -m 256 --clock virtual --steps ";
  expect_level([&](int steps) { return words + std::to_string(steps); },
               std::min(steps_or(1'000), 5'000));
}

TEST_F(LongRun, ThatTrainsHoldsItsMemory) {
  ASSERT_EQ(write_tiny_job(folder_).status, 0);
  expect_level([](int steps) { return "$BEGIN 0 plan.json --steps " + std::to_string(steps); },
               steps_or(40'000));
}

TEST_F(LongRun, OfProcessesOverTcpHoldsItsMemory) {
  expect_level([](int steps) { return over_tcp(small_order(steps)); }, steps_or(4'000), 2);
}

TEST_F(LongRun, ThatTrainsOverTcpHoldsItsMemory) {
  ASSERT_EQ(write_tiny_job(folder_).status, 0);
  expect_level([](int steps) { return over_tcp("plan.json --steps " + std::to_string(steps)); },
               steps_or(20'000), 2);
}

TEST_F(LongRun, OfProcessesOverMpiHoldsItsMemory) {
  if (std::string(PIPEWRIGHT_MPIRUN).empty()) GTEST_SKIP() << "there is no mpirun here";
  expect_level([](int steps) { return over_mpi(small_order(steps)); }, steps_or(10'000), 2);
}

/// The most that a run ever held, KiB; its output goes nowhere.
long peak_of(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(1);
    execv(PIPEWRIGHT_COMMAND, arguments.data());
    _exit(1);
  }
  rusage used{};
  int status = 0;
  wait4(child, &status, 0, &used);
  EXPECT_EQ(status, 0);
  return used.ru_maxrss;
}

TEST_F(LongRun, WritesItsJsonFromBoundedMemory) {
  const auto words = [](int steps) {
    return std::vector<std::string>{"pipewright",
                                    "run",
                                    "-s",
                                    "1f1b",
                                    "-p",
                                    "2",
                                    "-m",
                                    "2",
                                    "--clock",
                                    "virtual",
                                    "--json",
                                    "--steps",
                                    std::to_string(steps)};
  };
  const int steps = steps_or(60'000);
  // Of several: where the threads' stacks and heaps come to lie differs from run to run.
  long few = peak_of(words(steps / 10)), many = peak_of(words(steps));
  for (int again = 0; again < 2; ++again) {
    few = std::min(few, peak_of(words(steps / 10)));
    many = std::min(many, peak_of(words(steps)));
  }
  std::printf("%ld KiB for %d steps, %ld KiB for %d\n", few, steps / 10, many, steps);
  EXPECT_LE(many - few, kMostGrowth);
}

}  // namespace long_runs_test
}  // namespace pipewright::test
