// What Megatron-LM's timers print, read from logs as launchers leave them; what each stage takes.
#include "traces/logs/megatron_timers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/support/expect_refusal.hpp"
#include "traces/logs/rank_times.hpp"

namespace pipewright::traces {
namespace megatron_timers_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;

TEST(MegatronTimers, EachPrintHasTheIterationBeforeItAndTheTimesOfAllRanks) {
  const std::string log =
      "setting tensorboard ...\n"
      "times across ranks (ms):\n"
      "  model-and-optimizer-setup:\n"
      "     rank  0: 812.50\n"
      " iteration       10/     100 | consumed samples:          40 | elapsed time per iteration "
      "(ms): 170.5 | learning rate: 1.0E-04 | global batch size:     4 |\n"
      "times across ranks (ms):\n"
      "  forward-backward:\n"
      "     rank  0: 160.00\n"
      "     rank  1: 158.25\n"
      "  forward-recv:\n"
      "     rank  1: 3.01\n";
  const auto prints = read_megatron_timers(log, "train.log");
  ASSERT_EQ(prints.size(), 1U);  // setting up is no iteration
  EXPECT_EQ(prints[0].last, 10);
  EXPECT_EQ(prints[0].step_ns, 170'500'000);
  EXPECT_THAT(prints[0].times.at("forward-backward"), ElementsAre(160 * kMs, 158'250'000));
  EXPECT_THAT(prints[0].times.at("forward-recv"), ElementsAre(0, 3'010'000));
}

TEST(MegatronTimers, WhatALauncherOrADateAddsToALineIsPassedOver) {
  const std::string log =
      "[default7]: [2026-07-10 05:46:31.627699] iteration       20/      20 | elapsed time per "
      "iteration (ms): 744.0 | loss scale: 1.0 |\r\n"
      "[default7]:times across ranks (ms):\r\n"
      "[default7]:  forward-backward:\r\n"
      "[default7]:     rank  0: 700.00\r\n"
      "[default3]:WARNING on rank 3: a slow file system\r\n"
      "[default7]:     rank 11: 701.00\r\n"
      "[Rank 0] (after 20 iterations) memory (MB) | allocated: 3270.16\r\n";
  const auto prints = read_megatron_timers(log, "train.log");
  ASSERT_EQ(prints.size(), 1U);
  EXPECT_EQ(prints[0].last, 20);
  const auto& times = prints[0].times.at("forward-backward");
  ASSERT_EQ(times.size(), 12U);
  EXPECT_EQ(times[0], 700 * kMs);
  EXPECT_EQ(times[3], 0);
  EXPECT_EQ(times[11], 701 * kMs);
}

TEST(MegatronTimers, WithoutAnIterationWhatThereIsIsReturned) {
  const auto prints = read_megatron_timers(
      "times across ranks (ms):\n  model-and-optimizer-setup:\n     rank  1: 812.50\n",
      "train.log");
  ASSERT_EQ(prints.size(), 1U);
  EXPECT_FALSE(prints[0].last);
  EXPECT_THAT(prints[0].times.at("model-and-optimizer-setup"), ElementsAre(0, 812'500'000));
}

TEST(MegatronTimers, LeastAndMostOfAllRanksAreNotEnough) {
  const std::string log =
      "(min, max) time across ranks (ms):\n"
      "    forward-backward ...............................: (680.87, 699.52)\n";
  EXPECT_TRUE(has_megatron_timers(log));
  EXPECT_FALSE(has_megatron_timers("iteration 10/ 100 | elapsed time per iteration (ms): 3.0 |"));
  const InputError error = test::refusal([&] { (void)read_megatron_timers(log, "train.log"); });
  EXPECT_THAT(error.what(), HasSubstr("--timing-log-option all"));
  EXPECT_EQ(error.file(), "train.log");
}

TEST(MegatronTimers, ARankThatCannotBeIsRefusedWithItsLine) {
  const InputError error = test::refusal([&] {
    (void)read_megatron_timers("times across ranks (ms):\n  optimizer:\n rank 99999999: 1.0\n",
                               "a");
  });
  EXPECT_EQ(error.pointer(), "line 3");
}

TimedIterations four_ranks() {
  return {20,
          170 * kMs,
          {{"forward-backward", {160 * kMs, 160 * kMs, 159 * kMs, 159 * kMs}},
           {"forward-compute", {40 * kMs, 41 * kMs, 40 * kMs, 44 * kMs}},
           {"backward-compute", {80 * kMs, 79 * kMs, 80 * kMs, 88 * kMs}},
           {"batch-generator", {kMs, kMs, kMs, kMs}},  // within forward-compute
           {"backward-recv", {20 * kMs, 19 * kMs, 0, 0}},
           {"forward-send-backward-recv", {5 * kMs, 6 * kMs, 0, 0}},
           {"forward-recv", {0, 0, 25 * kMs, 12 * kMs}},
           {"all-grads-sync", {7 * kMs, 7 * kMs, 6 * kMs, 6 * kMs}},
           {"embedding-grads-all-reduce", {kMs, kMs, 2 * kMs, 2 * kMs}},
           {"optimizer-inner-step", {3 * kMs, 3 * kMs, 3 * kMs, 3 * kMs}},  // within optimizer
           {"optimizer", {8 * kMs, 8 * kMs, 8 * kMs, 8 * kMs}}}};
}

TEST(RankTimes, EveryTimerCountsOnceAndWhatNoneHasIsTheRest) {
  const auto ranks = rank_times_of(four_ranks(), "train.log");
  ASSERT_EQ(ranks.size(), 4U);
  EXPECT_EQ(ranks[0].computing(), 120 * kMs);
  EXPECT_EQ(ranks[0].messages, 25 * kMs);
  EXPECT_EQ(ranks[0].sums, 8 * kMs);
  EXPECT_EQ(ranks[0].rest(), 7 * kMs);
  EXPECT_EQ(ranks[0].optimizer, 8 * kMs);
  EXPECT_EQ(ranks[3].rest(), 159 * kMs - 132 * kMs - 12 * kMs - 8 * kMs);
}

TEST(RankTimes, AStageIsARowOfRanks) {
  const auto stages = stage_times_of(rank_times_of(four_ranks(), "train.log"), 2);
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_THAT(stages[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(stages[0].median.forward, 40 * kMs);
  EXPECT_EQ(stages[0].median.backward, 79 * kMs);
  EXPECT_EQ(stages[0].above, 0);
  EXPECT_EQ(stages[1].slowest, 3);
  EXPECT_DOUBLE_EQ(stages[1].above, 132.0 / 120 - 1);
}

TEST(RankTimes, TheMedianOfThePrintsIsByTheLongestPasses) {
  std::vector<TimedIterations> prints(4, four_ranks());
  prints[0].times.at("forward-backward")[2] = 400 * kMs;
  prints[1].times.at("forward-backward")[0] = 170 * kMs;
  prints[3].times.at("forward-backward")[1] = 180 * kMs;
  EXPECT_EQ(median_print(prints), 1U);  // 400, 170, 160, 180
}

TEST(RankTimes, WithoutTheTimersOfComputingTheLevelIsNamed) {
  TimedIterations print = four_ranks();
  print.times.erase("forward-compute");
  const InputError error = test::refusal([&] { (void)rank_times_of(print, "train.log"); });
  EXPECT_THAT(error.what(), HasSubstr("--timing-log-level 2"));
}

}  // namespace megatron_timers_test
}  // namespace pipewright::traces
