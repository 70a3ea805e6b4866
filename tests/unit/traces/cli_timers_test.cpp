// analyze of a log with Megatron-LM's timers, as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_timers_test {

using ::testing::HasSubstr;

/// Two stages of two replicas, 4 micro-batches, of which a forward takes 10 ms and a backward 20;
/// rank 3 takes a tenth longer.
constexpr const char* kLog =
    " iteration       20/     100 | elapsed time per iteration (ms): 171.0 | loss scale: 1.0 |\n"
    "times across ranks (ms):\n"
    "  forward-backward:\n     rank  0: 160.00\n     rank  1: 160.00\n     rank  2: 159.00\n"
    "     rank  3: 159.00\n"
    "  forward-compute:\n     rank  0: 40.00\n     rank  1: 40.00\n     rank  2: 40.00\n"
    "     rank  3: 44.00\n"
    "  backward-compute:\n     rank  0: 80.00\n     rank  1: 80.00\n     rank  2: 80.00\n"
    "     rank  3: 88.00\n";

TEST(AnalyzeTimers, StagesTheSlowRankAndTheScheduleWithTheseCosts) {
  const Folder folder;
  folder.write("train.log", kLog);
  const CommandResult text = pipewright("analyze train.log --pp 2 --micro-batches 4", folder);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("after iteration 20"));
  EXPECT_THAT(text.out, HasSubstr("rank 3 computes 10.0 % longer than the median of its stage"));
  // (4 + 2 - 1) * 30 ms
  EXPECT_THAT(text.out, HasSubstr("1f1b with these costs takes 150 ms, -6.2 % from the passes"));

  const CommandResult json =
      pipewright("analyze train.log --pp 2 --micro-batches 4 --json", folder);
  const auto timers = nlohmann::json::parse(json.out).at("timers");
  EXPECT_EQ(timers.at("passes_ns"), 160'000'000);
  EXPECT_EQ(timers.at("stages").at(1).at("slowest_rank"), 3);
  EXPECT_EQ(timers.at("ranks").at(3).at("backward_ns"), 88'000'000);
  EXPECT_EQ(timers.at("costs").at("F_ns"), nlohmann::json({10'000'000, 10'000'000}));
  EXPECT_EQ(timers.at("simulated").at("makespan_ns"), 150'000'000);
}

TEST(AnalyzeTimers, TheCommandThatItPrintsSimulatesTheSame) {
  const Folder folder;
  folder.write("train.log", kLog);
  const CommandResult shown =
      pipewright("analyze train.log --pp 2 --micro-batches 4 --vpp 2 --param group=2", folder);
  ASSERT_EQ(shown.status, 0) << shown.err;
  const auto at = shown.out.find("pipewright simulate");
  ASSERT_NE(at, shown.out.npos) << shown.out;
  const CommandResult typed = shell(
      "$PW" + shown.out.substr(at + 10, shown.out.find('\n', at) - at - 10) + " --json", folder);
  ASSERT_EQ(typed.status, 0) << typed.err;
  const CommandResult json = pipewright(
      "analyze train.log --pp 2 --micro-batches 4 --vpp 2 --param group=2 --json", folder);
  EXPECT_EQ(nlohmann::json::parse(typed.out).at("makespan_ns"),
            nlohmann::json::parse(json.out).at("timers").at("simulated").at("makespan_ns"));
}

TEST(AnalyzeTimers, WhatDoesNotGoWithALogIsRefused) {
  const Folder folder;
  folder.write("train.log", kLog);
  const auto refused = [&](const std::string& words) {
    const CommandResult result = pipewright("analyze train.log " + words, folder);
    EXPECT_EQ(result.status, 2) << words;
    return result.err;
  };
  EXPECT_THAT(refused("--pp 3"), HasSubstr("does not divide the 4 ranks"));
  EXPECT_THAT(refused("--step 30"), HasSubstr("printed after iteration 20"));
  EXPECT_THAT(refused("--costs-out c.csv"), HasSubstr("does not go with a log"));
  EXPECT_THAT(refused("train.log"), HasSubstr("one file too many"));
}

}  // namespace cli_timers_test
}  // namespace pipewright::test
