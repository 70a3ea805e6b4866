// scripts/gpu-check without a GPU: what it refuses, what its limits add up to, that they hold
// against commands that never end, what is left of it when it is killed, and the very commands that
// a GPU gets on the stand-in for the CUDA module.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace {

const std::string kScript = PIPEWRIGHT_SOURCE_DIR "/scripts/gpu-check";
const std::string kBuild = std::filesystem::path(PIPEWRIGHT_COMMAND).parent_path().string();

/// Ends well at once where doctor is asked for; else, and for every other program, as `rest` says.
void write_stubs(const Folder& folder, const std::string& rest) {
  const std::string doctor =
      R"(if [ "$1" = doctor ]; then echo '{"gpu": {"why_no_gpu": null, "gpus": [{}]}}'; exit 0; fi)";
  std::filesystem::create_directories(folder.path() / "stubs/stand_in");
  folder.write("stubs/stand_in/libpipewright_cuda.so", "");
  for (const char* program :
       {"pipewright", "gpu_kernels", "gpu_training", "gpu_graphs", "gpu_nccl", "bench_gpu_rates"}) {
    folder.write(std::string("stubs/") + program, "#!/bin/sh\n" + doctor + "\n" + rest + "\n");
    std::filesystem::permissions(folder.path() / "stubs" / program,
                                 std::filesystem::perms::owner_all);
  }
}

/// Shell text: the script goes on behind it, and so many calls of the stubs later, which note them
/// in the file "calls", so does the shell.
std::string until_calls(int more, const std::string& words) {
  return "touch calls; goal=$(($(wc -l <calls) + " + std::to_string(more) + ")); TMPDIR=. " +
         kScript + " " + words +
         " & tries=0; while [ $(wc -l <calls) -lt $goal ] && [ $tries -lt 1200 ]; do "
         "tries=$((tries + 1)); sleep 0.05; done; ";
}

Json results_in(const Folder& folder) {
  const CommandResult text = shell("tar xzOf results/gpu-check.tar.gz results.json", folder);
  EXPECT_EQ(text.status, 0) << text.err;
  return text.status == 0 ? Json::parse(text.out) : Json();
}

class GpuCheck : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("python3 --version", folder_).status != 0) GTEST_SKIP() << "there is no python3";
  }
  CommandResult check(const std::string& words) const {
    return shell(kScript + " " + words, folder_);
  }

  Folder folder_;
};

TEST_F(GpuCheck, SaysThatThereIsNoGpuAndExitsWith3) {
  if (shell("nvidia-smi --list-gpus", folder_).status == 0)
    GTEST_SKIP() << "this machine has a GPU";
  const CommandResult result = check("--deps . --out results");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("no GPU here"), std::string::npos) << result.err;
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(GpuCheck, RefusesWhatItDoesNotKnow) {
  for (const char* words : {"--fast", "--deps gone", "--build gone --rehearse", "--rehearse",
                            "--faster 2", "--only everything", "--minutes 0"}) {
    EXPECT_EQ(check(words).status, 2) << words;
  }
  folder_.write("build.tar.gz", "no archive");
  const CommandResult result = check("--rehearse --build build.tar.gz --out results");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("build.tar.gz"), std::string::npos) << result.err;
  EXPECT_EQ(check("--help").status, 0);
}

/// What --plan says of each command: its steps and set-up with their seconds.
struct PlannedCommand {
  double seconds = 0, sum = 0;
  std::set<std::string> steps;
};
std::vector<PlannedCommand> planned(const std::string& text) {
  std::vector<PlannedCommand> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double seconds = 0;
    if (line.rfind("command ", 0) == 0) {
      words >> name >> name >> seconds;
      commands.push_back({seconds, 0, {}});
    } else if (line.rfind("  ", 0) == 0 && words >> name >> seconds) {
      commands.back().sum += seconds;
      commands.back().steps.insert(name);
    }
  }
  return commands;
}

TEST_F(GpuCheck, AllLimitsTogetherFitIntoThreeCommandsOfTenMinutes) {
  const CommandResult result = check("--plan --build .");
  EXPECT_EQ(result.status, 0) << result.out;
  const auto commands = planned(result.out);
  ASSERT_LE(commands.size(), 3U);
  double all = 0;
  for (const PlannedCommand& command : commands) {
    EXPECT_GE(command.seconds, command.sum);
    EXPECT_LE(command.seconds, 600 - 30) << "half a minute to carry things there and back";
    all += command.seconds;
  }
  EXPECT_LE(all, 1800 - 120) << "two minutes to start the machine";
  for (const char* telling :
       {"conformance", "block", "partitions-2-bf16", "partitions-4-bf16", "graph-2"}) {
    EXPECT_EQ(commands.front().steps.count(telling), 1U) << telling;
  }
}

TEST_F(GpuCheck, WhereItIsCompiledFirstTheMostTellingStepsStillHaveTheirTime) {
  std::set<std::string> steps;
  for (const PlannedCommand& command : planned(check("--plan").out)) {
    EXPECT_LE(command.seconds, 600 - 30);
    steps.insert(command.steps.begin(), command.steps.end());
  }
  for (const char* telling : {"compile", "conformance", "block", "partitions-2-bf16",
                              "partitions-4-bf16", "graph-2", "rates", "conformance-rest"}) {
    EXPECT_EQ(steps.count(telling), 1U) << telling;
  }
}

/// Every program sleeps for good, so each step has all of its limit and each command all of its
/// minutes: at a tenth of the time, 12 s a command and 24 s together.
TEST_F(GpuCheck, NoStepOutlivesItsLimitNoCommandItsMinutesAndAllOfThemTheirs) {
  write_stubs(folder_, "sleep 1000");
  const std::string words =
      "--rehearse --build stubs --out results --faster 10 --minutes 2 --total 4 "
      "--only partitions-2-bf16,graph-2,rates,partitions-2-tf32,graph-4";
  constexpr double kSlack = 8;  // a busy machine starts and ends slowly
  for (int command = 0; command < 3; ++command) {
    const auto begun = std::chrono::steady_clock::now();
    const int status = check(words).status;
    EXPECT_EQ(status, command == 0 ? 4 : command == 2 ? 1 : status) << "command " << command;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    EXPECT_LE(took.count(), 12 + kSlack) << "command " << command;
  }
  int out_of_time = 0;
  const Json results = results_in(folder_);
  for (const Json& step : results.at("steps")) {
    SCOPED_TRACE(step.dump());
    if (step.at("status") == "left") {
      EXPECT_NE(step.at("why").get<std::string>().find("are left"), std::string::npos);
      continue;
    }
    EXPECT_EQ(step.at("status"), "out of time");
    EXPECT_LE(step.at("seconds").get<double>(), step.at("limit_s").get<double>() + kSlack);
    EXPECT_EQ(step.at("tries"), 1);
    ++out_of_time;
  }
  EXPECT_EQ(results.at("steps").size(), 5U);
  EXPECT_GE(out_of_time, 3);
  double all = 0;
  for (const Json& command : results.at("commands")) all += command.at("seconds").get<double>();
  EXPECT_LE(all, 24 + kSlack);
}

TEST_F(GpuCheck, WhatIsLeftOfACommandThatWasKilledIsWholeAndIsTakenUp) {
  write_stubs(folder_,
              "echo step >>" + (folder_.path() / "calls").string() + "; sleep 0.4; exit 1");
  const std::string words =
      "--rehearse --build stubs --out results "
      "--only conformance,block,graph-2,rates,memcheck,several-gpus,partitions-2-bf16";
  std::set<std::string> done;
  const std::pair<int, const char*> moments[] = {
      {1, "0"}, {2, "0.35"}, {1, "0.45"}, {4, "0.2"}, {1, "0.4"}};
  for (const auto& [calls, later] : moments) {
    shell(until_calls(calls, words) + "sleep " + later + "; kill -9 $!; wait", folder_);
    std::set<std::string> now;
    const Json results = results_in(folder_);
    for (const Json& step : results.at("steps")) {
      if (step.at("status") == "failed" || step.at("status") == "not taken")
        now.insert(step.at("name"));
    }
    EXPECT_TRUE(std::includes(now.begin(), now.end(), done.begin(), done.end()));
    done = now;
  }
  EXPECT_FALSE(done.empty());
  EXPECT_EQ(check(words).status, 1);
  const Json results = results_in(folder_);
  EXPECT_EQ(results.at("steps").size(), 7U);
  for (const Json& step : results.at("steps")) {
    EXPECT_TRUE(step.at("status") == "failed" || step.at("status") == "not taken") << step.dump();
    EXPECT_FALSE(step.at("why").get<std::string>().empty()) << step.dump();
    EXPECT_LE(step.at("tries").get<int>(), 2) << step.dump();
  }
  const CommandResult calls = shell("wc -l <calls", folder_);
  EXPECT_LE(std::stoi(calls.out), 2 * 9) << "what was done was done again";
  EXPECT_EQ(
      shell("tar xzOf results/gpu-check.tar.gz summary.txt | cmp - results/summary.txt", folder_)
          .status,
      0);
}

/// timeout(1) sends its signal twice.
TEST_F(GpuCheck, ACommandThatIsAskedToEndWritesWhatItHas) {
  write_stubs(folder_, "echo step >>" + (folder_.path() / "calls").string() + "; sleep 1000");
  const CommandResult result =
      shell(until_calls(1, "--rehearse --build stubs --out results --only block,rates") +
                "kill $!; kill $!; wait $!",
            folder_);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("cut off"), std::string::npos) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  const Json results = results_in(folder_);
  EXPECT_EQ(results.at("steps").at(0).at("status"), "begun");
  EXPECT_GT(results.at("commands").at(0).at("seconds").get<double>(), 0);
}

TEST_F(GpuCheck, AFileThatIsTooBigToCarryIsLeftOutAndNamed) {
  write_stubs(folder_, "head -c 6000000 /dev/urandom; exit 1");
  const CommandResult result =
      check("--rehearse --build stubs --out results --only block,partitions-2-bf16");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("left out of the archive: raw/block/log.txt: 1"), std::string::npos)
      << result.out;
  EXPECT_LT(std::filesystem::file_size(folder_.path() / "results/gpu-check.tar.gz"), 16U << 20U);
}

TEST_F(GpuCheck, AnArchiveThatIsNoneIsNotWrittenOver) {
  write_stubs(folder_, "exit 1");
  std::filesystem::create_directories(folder_.path() / "results");
  folder_.write("results/gpu-check.tar.gz", "somebody's");
  EXPECT_EQ(check("--rehearse --build stubs --out results").status, 2);
  EXPECT_EQ(shell("cat results/gpu-check.tar.gz", folder_).out, "somebody's");
}

/// As GoogleTest would tell of four tests: the second crashes, and the third fails unless it is
/// alone. A filter that leaves the first out leaves all that ran out.
TEST_F(GpuCheck, ACrashKeepsNoOtherTestFromRunningAndWhatFailedIsTriedAlone) {
  write_stubs(folder_, "exit 1");
  folder_.write("stubs/gpu_kernels", R"sh(#!/bin/sh
running() { echo "[==========] Running $1 tests from 1 test suite."; }
case "$2" in
  --gtest_filter=K.B) running 1; echo "[ RUN      ] K.B"; kill -9 $$ ;;
  --gtest_filter=K.C) running 1; echo "[ RUN      ] K.C"; echo "[       OK ] K.C (1 ms)" ;;
  '--gtest_filter=*-K.A:K.B')
    running 2
    echo "[ RUN      ] K.C"; echo "[  FAILED  ] K.C, where GetParam() = 3 (1 ms)"
    echo "[ RUN      ] K.D"; echo "[       OK ] K.D (1 ms)"
    echo "[  FAILED  ] K.C, where GetParam() = 3" ;;
  *)
    running 4
    echo "[ RUN      ] K.A"; echo "[       OK ] K.A (1 ms)"
    echo "[ RUN      ] K.B"; kill -9 $$ ;;
esac
)sh");
  EXPECT_EQ(check("--rehearse --build stubs --out results --only conformance").status, 1);
  const Json results = results_in(folder_);
  const Json& step = results.at("steps").at(0);
  EXPECT_EQ(step.at("status"), "failed");
  const std::string why = step.at("why");
  EXPECT_NE(why.find("gpu_kernels: 2 failed, of which 1 pass alone: K.B, K.C"), std::string::npos)
      << why;
  EXPECT_NE(why.find("gpu_training ran no test"), std::string::npos)
      << "the rest of the step runs: " << why;
  const Json& figure = step.at("figures").at(0);
  EXPECT_EQ(figure.at("what"),
            "kernels against the CPU, bits: tests that pass, of 4, 1 more alone");
  EXPECT_EQ(figure.at("found"), 2);
  EXPECT_EQ(figure.at("verdict"), "no");
}

TEST_F(GpuCheck, ABuildThatDoesNotRunThereIsSaidSoBeforeAnyStep) {
  write_stubs(folder_, "exit 1");
  folder_.write("stubs/pipewright",
                "#!/bin/sh\necho '{\"gpu\": {\"why_no_gpu\": \"libcublas.so.13 is missing\"}}'\n");
  const CommandResult result = check("--rehearse --build stubs --out results");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("set-up of command 1: failed: doctor: libcublas.so.13 is missing"),
            std::string::npos)
      << result.out;
  EXPECT_TRUE(results_in(folder_).at("steps").empty());
}

/// What Nsight Compute told of an H200 (kernels.csv): each kernel has its kind, its time and the
/// bytes that it moved, and how weights begin is no part of a step.
TEST_F(GpuCheck, KernelsOfAStepAreToldByTheirKind) {
  folder_.write("tell.py", R"(import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1] + '/scripts')
from gpu_check import gpt

class Context:
    def path(self, name): return name
    def figure(self, what, found, *_): print(f'{what}: {found:.3f}')

found = list(gpt.kernels_of(open(sys.argv[1] + '/tests/gpu/kernels.csv')))
gpt.report(Context(), found)
gpt.report_rates(Context(), found, 4 * 2048 * 2048)
print(open('kernels.txt').readline().split())
)");
  const CommandResult result = shell("python3 tell.py " PIPEWRIGHT_SOURCE_DIR, folder_);
  EXPECT_EQ(result.out,
            "kernels of a step: share of update: 0.537\n"
            "kernels of a step: share of products: 0.351\n"
            "kernels of a step: share of attention: 0.106\n"
            "kernels of a step: share of norms: 0.006\n"
            "kernels of a step: share outside products and attention: 0.543\n"
            "kernels of a step: LayerNormForward: bytes a second, of the update's: 0.468\n"
            "['53.66', '%', '1', 'x', '3065.15', 'us', '4020.2', 'GB/s', 'update', "
            "'pipewright::pack_kernel<pipewright::AdamwUpdate>']\n")
      << result.err;
}

/// The commands that a GPU gets, all flags included, on small models and the host's table. Others
/// may be busy with this machine, so limits are four times as long.
TEST_F(GpuCheck, TheStandInPassesWhatAGpuWillBeAsked) {
  const CommandResult result =
      check("--rehearse --build " + kBuild +
            " --out results --faster 0.25 --only "
            "conformance,block,partitions-2-bf16,partitions-4-bf16,graph-2,gpt,rates,"
            "nccl,partitions-2-tf32,partitions-2-fp32,several-gpus");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("REHEARSAL"), std::string::npos);
  std::set<std::string> figures;
  const Json results = results_in(folder_);
  for (const Json& step : results.at("steps")) {
    const std::string status = step.at("status");
    const bool needs_gpus = step.at("name") == "nccl" || step.at("name") == "several-gpus";
    EXPECT_EQ(status, needs_gpus ? "not taken" : "passed") << step.dump();
    for (const Json& figure : step.at("figures")) figures.insert(figure.at("what"));
  }
  for (const char* precision : {"bf16", "tf32", "fp32"}) {
    EXPECT_EQ(figures.count(std::string("one block, ") + precision + ": TFLOP/s of F, I and W"),
              1U);
    EXPECT_EQ(figures.count(std::string("2 partitions, ") + precision +
                            ": gap between actions, ns, median"),
              1U);
  }
  EXPECT_EQ(figures.count("2 partitions, bf16, CUDA graph: gap between actions, ns, median"), 1U);
  const CommandResult flags = shell(
      "tar xzOf results/gpu-check.tar.gz raw/partitions-2-tf32/log.txt | grep -c 'precision tf32'",
      folder_);
  EXPECT_EQ(flags.out, "2\n") << "of profile and of run";
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"results"});
}

TEST_F(GpuCheck, ABuildIsPackedForAnotherMachineAndTakenUpThere) {
  // Where CUDA is not built, the stand-in takes the module's place.
  const CommandResult packed =
      shell("mkdir -p build/tests/bench && cp -rs " + kBuild + "/tests/gpu build/tests/ && cp -s " +
                kBuild + "/pipewright " + kBuild +
                "/tests/gpu/stand_in/libpipewright_cuda.so build/ && cp -s " + kBuild +
                "/tests/bench/bench_gpu_rates build/tests/bench/ && " + kScript +
                " --pack packed.tar.gz --build build",
            folder_);
  ASSERT_EQ(packed.status, 0) << packed.err;
  EXPECT_LT(std::filesystem::file_size(folder_.path() / "packed.tar.gz"), 48U << 20U);
  const CommandResult result =
      check("--rehearse --build packed.tar.gz --out results --faster 0.25 --only rates,graph-2");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  const CommandResult missing = check("--pack other.tar.gz --build results");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("libpipewright_cuda.so"), std::string::npos) << missing.err;
}

}  // namespace
}  // namespace pipewright::test
