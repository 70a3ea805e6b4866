// Critical paths, and what is alive at a peak, worked out by hand.
#include "traces/analysis/critical_path.hpp"

#include <gtest/gtest.h>

#include "tests/support/traced.hpp"
#include "traces/analysis/memory_profile.hpp"

namespace pipewright::traces {
namespace critical_path_test {

/// "0F0 [0,1000) computation; …".
std::string text_of(const test::Traced& t, Times times = Times::Simulated) {
  std::string text;
  for (const PathStep& step : critical_path(t.program, t.timeline, times)) {
    text += t.program.text(step.instruction) + " " + std::to_string(step.start_ns) + "-" +
            std::to_string(step.end_ns) + " " + std::string(to_string(step.kind)) + "; ";
  }
  return text;
}

TEST(CriticalPath, GoesThroughActionsAndTheirMessages) {
  const auto t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=1000,B=2000,comm=500");
  EXPECT_EQ(text_of(t),
            "0F0 0-1000 computation; 1RECV_F0 1000-1500 message; 1F0 1500-2500 computation; "
            "1B0 2500-4500 computation; 0RECV_B0 4500-5000 message; 0B0 5000-7000 computation; ");
}

TEST(CriticalPath, StaysOnTheSlowStage) {
  // Stage 1 takes twice as long: behind its first forward the step waits for nobody else until its
  // last backward.
  CostTable costs = CostTable::uniform(2, {.f = Nanoseconds(10), .b = Nanoseconds(10)}, {});
  costs.stages[1] = {.f = Nanoseconds(20), .b = Nanoseconds(20)};
  const Order order = read_order_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "order.csv");
  const auto t = test::traced(order, comm_policy_preset("ideal"), costs);
  EXPECT_EQ(text_of(t),
            "0F0 0-10 computation; 1F0 10-30 computation; 1B0 30-50 computation; "
            "1F1 50-70 computation; 1B1 70-90 computation; 0B1 90-100 computation; ");
}

TEST(CriticalPath, ARendezvousWaitsForTheLaterOfItsEnds) {
  // The RECV stands ready from the beginning, the SEND when what it carries is made.
  const auto t =
      test::traced_csv("0F0\n1F0\n", CommPolicy{.issue = Issue::Inline}, "F=100,comm=30");
  EXPECT_EQ(text_of(t),
            "0F0 0-100 computation; 1RECV_F0 100-130 message; 1F0 130-230 computation; ");
}

TEST(CriticalPath, WhatMeasurementsDoNotExplainIsSaid) {
  auto t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=1000,B=2000,comm=500");
  const InstructionId last = t.id("0B0");
  t.timeline.start[last] += 40;
  t.timeline.moving[last] += 40;
  t.timeline.end[last] += 40;
  t.timeline.makespan_ns += 40;
  const std::string text = text_of(t);
  EXPECT_NE(text.find("0B0 5000-5040 unexplained; 0B0 5040-7040 computation; "), std::string::npos)
      << text;
}

/// Rank 1 has posted its second receive early, and takes what came at 1000 when its B has ended.
test::Traced taken_late() {
  auto t = test::traced_csv("0F0,0F1\n1F0,1B0,1F1\n", CommPolicy{}, "F=500,B=2000,comm=100");
  const auto set = [&](const char* name, std::int64_t start, std::int64_t moving,
                       std::int64_t end) {
    const InstructionId id = t.id(name);
    t.timeline.start[id] = start;
    t.timeline.moving[id] = moving;
    t.timeline.end[id] = end;
  };
  set("1F0", 600, 600, 1100);
  set("1RECV_F1", 1100, 3160, 3260);
  set("0SEND_F1", 1000, 1000, 1050);
  set("1B0", 1110, 1110, 3110);
  set("1F1", 3260, 3260, 3760);
  t.timeline.makespan_ns = 3760;
  return t;
}

TEST(CriticalPath, AMessageThatIsTakenLateWaitedForTheRankThatWasComputing) {
  EXPECT_EQ(
      text_of(taken_late(), Times::Measured),
      "0F0 0-500 computation; 1RECV_F0 500-600 message; 1F0 600-1100 computation; "
      "1B0 1100-1110 unexplained; 1B0 1110-3110 computation; "
      "1RECV_F1 3110-3160 unexplained; 1RECV_F1 3160-3260 message; 1F1 3260-3760 computation; ");
}

TEST(CriticalPath, AReceiveThatIsPostedLateWaitedForTheRankThatWasComputing) {
  auto t = taken_late();
  t.timeline.start[t.id("1RECV_F1")] = 3150;
  const std::string text = text_of(t, Times::Measured);
  EXPECT_NE(text.find("1B0 1110-3110 computation; 1RECV_F1 3110-3150 unexplained; "
                      "1RECV_F1 3150-3160 unexplained; 1RECV_F1 3160-3260 message; "),
            std::string::npos)
      << text;
}

TEST(CriticalPath, NothingMovesBeforeItIsSent) {
  auto t = taken_late();
  // By the clocks of the ranks the data moved while its sender was still computing.
  t.timeline.end[t.id("0F1")] = 3200;
  t.timeline.start[t.id("0SEND_F1")] = t.timeline.moving[t.id("0SEND_F1")] = 3220;
  const std::string text = text_of(t, Times::Measured);
  EXPECT_NE(text.find("0SEND_F1 3200-3220 unexplained; 1RECV_F1 3220-3260 message; "),
            std::string::npos)
      << text;
}

TEST(CriticalPath, OfAStuckStepLeadsToWhatEndedLast) {
  const auto t = test::traced_csv("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
                                  CommPolicy{.issue = Issue::Inline}, "F=10,B=20");
  ASSERT_FALSE(t.finished);
  EXPECT_EQ(text_of(t), "0F0 0-10 computation; ");
}

TEST(MemoryProfile, TellsWhatIsAliveAtThePeak) {
  const auto t = test::traced_schedule("1f1b", 2, 4, 1, "ideal", "F=10,B=20");
  CostTable costs = t.costs;
  costs.memory.assign(
      2, {.f = Bytes(100), .w = Bytes(-100), .constant = Bytes(1000), .in_f = Bytes(130)});
  const auto profiles = memory_profiles(t.program, t.timeline, costs);
  ASSERT_EQ(profiles.size(), 2U);
  const MemoryPeak& peak = profiles[0].peak;
  // Two forwards are kept; while the second one runs it holds 30 more than it keeps.
  EXPECT_EQ(peak.bytes, 1230);
  EXPECT_EQ(t.program.text(peak.instruction), "0F1");
  EXPECT_EQ(peak.at_ns, 10);
  EXPECT_EQ(peak.constant_bytes, 1000);
  EXPECT_EQ(peak.other_bytes(), 30);
  ASSERT_EQ(peak.alive.size(), 2U);
  EXPECT_EQ(peak.alive[0].micro_batch, MicroBatchId(0));
  EXPECT_EQ(peak.alive[1].micro_batch, MicroBatchId(1));
  EXPECT_EQ(peak.alive[1].bytes, 100);
}

TEST(MemoryProfile, BetweenIAndWAMicroBatchIsKeptForItsWeights) {
  const auto t =
      test::traced_csv("0F0,0I0,0F1,0W0,0I1,0W1\n", comm_policy_preset("ideal"), "F=10,I=10,W=10");
  CostTable costs = t.costs;
  costs.memory.assign(1, {.f = Bytes(100), .i = Bytes(-40), .w = Bytes(-60)});
  const MemoryPeak peak = memory_profiles(t.program, t.timeline, costs)[0].peak;
  EXPECT_EQ(peak.bytes, 160);
  ASSERT_EQ(peak.alive.size(), 2U);
  EXPECT_TRUE(peak.alive[0].for_weights_alone);
  EXPECT_EQ(peak.alive[0].bytes, 60);
  EXPECT_FALSE(peak.alive[1].for_weights_alone);
}

}  // namespace critical_path_test
}  // namespace pipewright::traces
