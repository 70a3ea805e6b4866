// Traces in PyTorch's form whose computations hold waiting, with answers worked out by hand, and
// ranks' files brought onto one clock.
#include "traces/analysis/slice_waits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/expect_refusal.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::traces {
namespace slice_waits_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A trace of one rank, in microseconds.
class TorchTrace {
 public:
  explicit TorchTrace(int rank, double base_us = 0) : rank_(rank), base_us_(base_us) {}

  TorchTrace& slice(const std::string& name, double from, double to,
                    const std::string& category = "user_annotation") {
    events_ += (events_.empty() ? "" : ",") + std::string(R"({"ph":"X","cat":")") + category +
               R"(","name":")" + name + R"(","pid":7,"tid":7,"ts":)" + std::to_string(from) +
               R"(,"dur":)" + std::to_string(to - from) + "}";
    return *this;
  }
  TorchTrace& op(double from, double to) { return slice("aten::mm", from, to, "cpu_op"); }

  std::string text() const {
    return R"({"distributedInfo":{"rank":)" + std::to_string(rank_) +
           R"(,"world_size":2},"baseTimeNanoseconds":)" +
           std::to_string(static_cast<std::int64_t>(base_us_ * 1000)) + R"(,"traceEvents":[)" +
           events_ + "]}";
  }
  std::string file() const { return "rank" + std::to_string(rank_) + ".json"; }
  TraceTimeline read() const { return parse_trace(text(), file()); }
  std::vector<TraceTimeline> read_steps() const { return parse_trace_steps(text(), file()); }

 private:
  int rank_;
  double base_us_;
  std::string events_;
};

/// "0B0 12-20" in microseconds.
std::vector<std::string> computations(const TraceRank& rank) {
  std::vector<std::string> lines;
  for (const TraceSpan& span : rank.spans) {
    if (span.kind != SpanKind::Compute) continue;
    lines.push_back(to_string(span.cell) + " " + std::to_string(span.start_ns / 1000) + "-" +
                    std::to_string(span.end_ns / 1000));
  }
  return lines;
}

/// Rank 0 of two: F0, then B0's slice from 12 to 40, of which 12 to 32 is waiting.
TorchTrace first_rank() {
  TorchTrace trace(0);
  trace.slice("PP:0F0", 0, 10).op(1, 10).slice("PP:0SEND_F0", 10, 11).slice("gloo:send", 14, 90);
  trace.slice("PP:0RECV_B0", 11, 12).slice("gloo:recv", 11, 32);
  trace.slice("c10d::recv_", 11, 12, "cpu_op").slice("PP:0B0", 12, 40).op(33, 40);
  return trace;
}

TorchTrace second_rank(double clock_ahead_us = 0) {
  TorchTrace trace(1);
  const auto at = [&](double us) { return us + clock_ahead_us; };
  trace.slice("PP:1RECV_F0", at(0), at(1)).slice("gloo:recv", at(1), at(13));
  trace.slice("PP:1F0", at(1), at(20)).op(at(13.5), at(20));
  trace.slice("PP:1B0", at(20), at(30)).op(at(20), at(30)).slice("PP:1SEND_B0", at(30), at(31));
  trace.slice("gloo:send", at(30), at(60));
  return trace;
}

TEST(SliceWaits, EndWithTheReceiveThatTheComputationNeeds) {
  const TraceTimeline trace = first_rank().read();
  const TraceRank& rank = trace.ranks.at(0);
  EXPECT_EQ(rank.wait_rule, WaitRule::Receives);
  EXPECT_THAT(computations(rank), ElementsAre("0F0 0-10", "0B0 32-40"));
  ASSERT_EQ(rank.waits.size(), 1U);
  EXPECT_EQ(rank.waits[0].end_ns - rank.waits[0].start_ns, 20'000);
  EXPECT_EQ(trace.world_size, 2);
}

TEST(SliceWaits, AnOverlappedPairWaitsTwiceAndTheOperatorsBetweenAreWork) {
  TorchTrace trace(0);
  trace.slice("PP:3RECV_F1", 0, 1).slice("gloo:recv", 1, 10);
  trace.slice("PP:0RECV_B0", 1, 2).slice("gloo:recv", 2, 26);
  // Waits 2 to 10, F until 20, waits 20 to 26, B until 36.
  trace.slice("PP:(3F1;0B0)OVERLAP_F_B", 2, 36).op(10, 20).op(12, 15).op(26, 36);
  const TraceTimeline read = trace.read();
  EXPECT_THAT(computations(read.ranks.at(0)), ElementsAre("(3F1;0B0)OVERLAP_F_B 16-36"));
}

TEST(SliceWaits, AReceiveThatEndsUnderAnOperatorWasNotWaitedFor) {
  TorchTrace trace(1);
  trace.slice("PP:1RECV_F0", 0, 1).slice("gloo:recv", 1, 8);
  trace.slice("PP:1F0", 2, 12).op(2, 12);
  EXPECT_THAT(computations(trace.read().ranks.at(0)), ElementsAre("1F0 2-12"));
}

TEST(SliceWaits, WithoutReceivesEndWithTheFirstOperatorInside) {
  TorchTrace trace(1);
  trace.slice("PP:1F0", 0, 20).op(14, 17).op(17, 20).slice("PP:1B0", 20, 30).op(20, 30);
  trace.slice("PP:1RECV_B1", 30, 31).slice("PP:1I1", 31, 40);  // a first stage's I computes nothing
  const TraceTimeline read = trace.read();
  EXPECT_EQ(read.ranks.at(0).wait_rule, WaitRule::Operators);
  EXPECT_THAT(computations(read.ranks[0]), ElementsAre("1F0 14-20", "1B0 20-30", "1I1 40-40"));
}

TEST(SliceWaits, WithoutOperatorsEndWithWhatFeedsThemOnAnotherRank) {
  TorchTrace first(0), second(1);
  first.slice("PP:0F0", 0, 10).slice("PP:0B0", 10, 40);
  second.slice("PP:1F0", 0, 20).slice("PP:1B0", 20, 30);
  EXPECT_EQ(first.read().ranks.at(0).wait_rule, WaitRule::Unknown);
  const JoinedTrace joined = join_ranks({first.read(), second.read()});
  EXPECT_EQ(joined.trace.ranks.at(0).wait_rule, WaitRule::Producers);
  EXPECT_THAT(computations(joined.trace.ranks[0]), ElementsAre("0F0 0-10", "0B0 30-40"));
  EXPECT_THAT(computations(joined.trace.ranks[1]), ElementsAre("1F0 10-20", "1B0 20-30"));
}

TEST(SliceWaits, AnOptimizersStepIsOneUpdate) {
  TorchTrace trace(0);
  trace.slice("PP:0F0", 0, 2).op(0, 2).slice("PP:0B0", 2, 5).op(2, 5);
  trace.slice("Optimizer.step#AdamW.step", 6, 8).slice("Optimizer.step#SGD.step", 8, 9);
  EXPECT_THAT(computations(trace.read().ranks.at(0)), ElementsAre("0F0 0-2", "0B0 2-5", "OPT 6-9"));
  TorchTrace plain(0);
  plain.slice("Optimizer.step#AdamW.step", 6, 8);
  EXPECT_THAT(test::refusal([&] { plain.read(); }).message(), HasSubstr("no action of a pipeline"));
}

TEST(JoinRanks, KeepsClocksByWhichEveryMessageEndsBehindItsBegin) {
  const JoinedTrace joined = join_ranks({second_rank().read(), first_rank().read()});
  EXPECT_TRUE(joined.clocks.agreed);
  ASSERT_EQ(joined.trace.ranks.size(), 2U);
  EXPECT_EQ(joined.trace.ranks[0].rank, 0);
  EXPECT_THAT(computations(joined.trace.ranks[1]), ElementsAre("1F0 13-20", "1B0 20-30"));
  EXPECT_EQ(joined.trace.makespan_ns, 40'000);
}

/// The activation leaves at 10 and has come by 13, the gradient leaves at 30 and has come by 32: of
/// rank 1's clock the messages allow -3 to +2 around the truth.
TEST(JoinRanks, SetsAClockRightToWithinWhatTheMessagesAllow) {
  for (const double ahead : {500.0, -7.0, 2.5}) {
    const JoinedTrace joined = join_ranks({first_rank().read(), second_rank(ahead).read()});
    EXPECT_FALSE(joined.clocks.agreed);
    ASSERT_EQ(joined.clocks.shifts.size(), 2U);
    EXPECT_EQ(joined.clocks.shifts[0].shift_ns, 0);
    const double error_us = static_cast<double>(joined.clocks.shifts[1].shift_ns) / 1000 + ahead;
    EXPECT_NEAR(error_us, -0.5, 1e-3) << "clock ahead by " << ahead;
    // And clocks that run apart by up to 500 ppm within 20 us.
    EXPECT_NEAR(joined.clocks.shifts[1].most_ns - joined.clocks.shifts[1].least_ns, 5000, 22);
  }
}

TEST(JoinRanks, CountsFromEachFilesOwnBase) {
  TorchTrace other(1, 100);  // its times are 100 us less
  other.slice("PP:1RECV_F0", -100, -99).slice("gloo:recv", -99, -87);
  other.slice("PP:1F0", -99, -80).op(-86, -80).slice("PP:1B0", -80, -70).op(-80, -70);
  const JoinedTrace joined = join_ranks({first_rank().read(), other.read()});
  EXPECT_TRUE(joined.clocks.agreed);
  EXPECT_THAT(computations(joined.trace.ranks.at(1)), ElementsAre("1F0 13-20", "1B0 20-30"));
}

TEST(JoinRanks, RefusesWhatIsNoSetOfOneStep) {
  EXPECT_THAT(test::refusal([] {
                join_ranks({first_rank().read(), first_rank().read()});
              }).message(),
              HasSubstr("is of rank 0, as rank0.json is"));
  TorchTrace replica(1);
  replica.slice("PP:0F0", 0, 1);
  EXPECT_THAT(test::refusal([&] {
                join_ranks({first_rank().read(), replica.read()});
              }).message(),
              HasSubstr("computes 0F0, as rank 0 does"));
  TorchTrace slow(1);  // the gradient leaves 90 us behind the activation and has come 22 behind it
  slow.slice("PP:1F0", 0, 20).op(10, 20).slice("PP:1B0", 20, 100).op(20, 100);
  EXPECT_THAT(test::refusal([&] {
                join_ranks({first_rank().read(), slow.read()});
              }).message(),
              HasSubstr("some message ends before it began"));
}

/// Rank 1 in the same file as rank 0, its clock 11 s ahead: as people merge traces by hand.
TEST(JoinRanks, SetsClocksRightInAFileOfSeveralRanks) {
  const std::string text = R"({"traceEvents":[
    {"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0"}},
    {"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 1"}},
    {"ph":"X","name":"PP:0F0","pid":1,"tid":1,"ts":0,"dur":10},
    {"ph":"X","name":"PP:0B0","pid":1,"tid":1,"ts":31,"dur":9},
    {"ph":"X","name":"PP:1F0","pid":2,"tid":1,"ts":11000011,"dur":9},
    {"ph":"X","name":"PP:1B0","pid":2,"tid":1,"ts":11000020,"dur":9}]})";
  const JoinedTrace joined = join_ranks({parse_trace(text, "both.json")});
  EXPECT_FALSE(joined.clocks.agreed);
  EXPECT_EQ(joined.clocks.acausal_before, 1U);
  EXPECT_EQ(joined.clocks.acausal_after, 0U);
  EXPECT_EQ(joined.trace.makespan_ns, 40'000);
}

TEST(JoinRanks, RefusesAWrongClockThatNoMessageBounds) {
  TorchTrace first(0), second(1);  // forward only
  first.slice("PP:0F0", 100, 110);
  second.slice("PP:1F0", 0, 20);
  EXPECT_THAT(test::refusal([&] {
                join_ranks({first.read(), second.read()});
              }).message(),
              HasSubstr("its clock cannot be set right"));
}

/// Steps by the profiler's marks; the second file shows one step less.
TEST(JoinSteps, TakesTheStepsThatAllFilesShow) {
  const auto file = [](int rank, int first_step, int steps) {
    TorchTrace trace(rank);
    for (int k = first_step; k < first_step + steps; ++k) {
      const double at = 100.0 * k;
      const std::string stage = std::to_string(rank);
      trace.slice("ProfilerStep#" + std::to_string(k), at, at + 99);
      trace.slice("PP:" + stage + "F0", at + 20 * rank, at + 20 * rank + 10);
      trace.slice("PP:" + stage + "B0", at + 60 - 20 * rank, at + 70 - 20 * rank + k);
    }
    return trace.read_steps();
  };
  const auto joined = join_steps({file(1, 6, 2), file(0, 5, 3)});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].trace.step, 6);
  EXPECT_EQ(joined[1].trace.step, 7);
  EXPECT_EQ(joined[0].trace.ranks.size(), 2U);
  EXPECT_EQ(joined[1].trace.makespan_ns, 77'000);
  EXPECT_THAT(test::refusal([&] {
                join_steps({file(1, 1, 1), file(0, 2, 1)});
              }).message(),
              HasSubstr("no step of the profiler in common"));
}

}  // namespace slice_waits_test
}  // namespace pipewright::traces
