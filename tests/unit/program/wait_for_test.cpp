#include "core/program/wait_for.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace wait_for_test {

struct Checked {
  Program program;
  WaitReport report;

  /// "rank: head -> waits_for behind head; …"
  std::string cycle() const {
    std::string text;
    for (const auto& step : report.cycle) {
      text += std::to_string(step.rank.value) + ": " + program.text(step.instruction) + " -> " +
              program.text(step.waits_for) + " behind " + program.text(step.behind) + "; ";
    }
    return text;
  }
  std::string stuck() const {
    std::string text;
    for (const auto& head : report.stuck)
      text += std::to_string(head.rank.value) + "." + std::to_string(head.lane) + ":" +
              program.text(head.instruction) + " ";
    return text;
  }
};

Checked checked(std::string_view csv, const CommPolicy& policy, bool fragment = false) {
  Checked c{lower(read_order_csv(csv, "order.csv"), policy, {.fragment = fragment}), {}};
  c.report = sim::check(c.program, CostTable::uniform(c.program.stages, {}));
  return c;
}

constexpr std::string_view kIssue172668 = "0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n";

TEST(WaitFor, TwoSendsThatFaceEachOther) {
  const Checked c = checked(kIssue172668, {.issue = Issue::Inline}, true);
  EXPECT_EQ(c.report.verdict, Verdict::Deadlock);
  EXPECT_EQ(c.cycle(),
            "0: 0SEND_F1 -> 1RECV_F1 behind 1SEND_F0; 1: 1SEND_F0 -> 2RECV_F0 behind 0SEND_F1; ");
  EXPECT_EQ(c.stuck(), "0.0:0SEND_F1 1.0:1SEND_F0 ");
  EXPECT_EQ(describe(c.program, c.report),
            "rank 0  0SEND_F1 waits for rank 1's 1RECV_F1, which stands behind 1SEND_F0\n"
            "rank 1  1SEND_F0 waits for rank 0's 2RECV_F0, which stands behind 0SEND_F1\n");
}

/// Its own computations wait for each other, however they communicate.
constexpr std::string_view kCrossed = "0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n";

TEST(WaitFor, AnOrderWithoutTransfersIsExplainedInItsOwnComputations) {
  const std::string wanted =
      "rank 0  0B0 waits for rank 1's 1B0 (through 1SEND_B0), which stands behind 1F1\n"
      "rank 1  1F1 waits for rank 0's 0F1 (through 0SEND_F1), which stands behind 0B0\n";
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const Checked c = checked(kCrossed, preset.policy);
    if (c.report.verdict == Verdict::Mismatch) continue;  // receives that were moved
    EXPECT_EQ(c.report.verdict, Verdict::Deadlock) << preset.name;
    EXPECT_EQ(describe(c.program, c.report), wanted) << preset.name;
  }
  // The cycle among the lanes stays what the page says.
  EXPECT_EQ(checked(kCrossed, {}).cycle(), "0: 0B0 -> 0RECV_B0 behind 0B0; ");
}

TEST(WaitFor, WhereTheTransfersAreToBlameTheirCycleIsShown) {
  const Checked c = checked("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                            {.issue = Issue::Inline, .post = Post::Deferred});
  EXPECT_EQ(c.report.verdict, Verdict::Deadlock);
  EXPECT_TRUE(c.report.cause.empty());
  EXPECT_FALSE(c.report.shown().empty());
  const Checked written = checked(kIssue172668, {.issue = Issue::Inline}, true);
  EXPECT_TRUE(written.report.cause.empty());
}

TEST(WaitFor, TheSameOrderEndsWhenBufferedGroupedOrOnEdges) {
  EXPECT_EQ(checked(kIssue172668, {.issue = Issue::Stream}, true).report.verdict, Verdict::Ok);
  EXPECT_EQ(checked(kIssue172668, {.issue = Issue::Grouped}, true).report.verdict, Verdict::Ok);
  CommPolicy buffered{.issue = Issue::Inline};
  buffered.send_f = {Protocol::Kind::EagerUnlimited, 0};
  EXPECT_EQ(checked(kIssue172668, buffered, true).report.verdict, Verdict::Ok);
  // One queue for a pair of ranks couples the two directions again.
  EXPECT_EQ(checked(kIssue172668, {.channel = Channel::Pair}, true).report.verdict,
            Verdict::Deadlock);
}

TEST(WaitFor, ABackwardBeforeItsForwardWaitsForItself) {
  const Checked c = checked("0F0,0B0\n1B0,1F0\n", CommPolicy{});
  EXPECT_EQ(c.report.verdict, Verdict::Deadlock);
  EXPECT_EQ(c.cycle(), "1: 1B0 -> 1F0 behind 1B0; ");
}

TEST(WaitFor, AWaitForSomethingOutsideIsInvalidButADeadlockInAFragment) {
  constexpr std::string_view kNoSend = "0F0\n1RECV_F0,1F0\n";
  const Checked whole = checked(kNoSend, CommPolicy{});
  EXPECT_EQ(whole.report.verdict, Verdict::Invalid);
  EXPECT_TRUE(whole.report.cycle.empty());
  ASSERT_EQ(whole.report.reasons.size(), 1u);
  const Checked fragment = checked(kNoSend, CommPolicy{}, true);
  EXPECT_EQ(fragment.report.verdict, Verdict::Deadlock);
  EXPECT_TRUE(fragment.report.cycle.empty());
  EXPECT_EQ(fragment.stuck(), "1.0:1F0 1.1:1RECV_F0 ");
}

TEST(WaitFor, AMismatchIsReportedBeforeADeadlock) {
  const Checked c =
      checked("0F0,0SEND_F0,2F0,2SEND_F0\n3RECV_F0,3F0,1RECV_F0,1F0\n", CommPolicy{}, true);
  EXPECT_EQ(c.report.verdict, Verdict::Mismatch);
  EXPECT_EQ(c.program.text(c.report.mismatched_recv), "3RECV_F0");
  EXPECT_EQ(c.program.text(c.report.mismatched_send), "0SEND_F0");
}

TEST(WaitFor, TheShortestOfTwoCyclesIsReported) {
  // Ranks 0, 1, 2 send in a ring of three (stages 0..2, wrap by stage 3 on rank 0); ranks 3 and 4
  // face each other: two beat three.
  const Checked c = checked(
      "0SEND_F0,3RECV_F0\n1SEND_F0,1RECV_F0\n2SEND_F0,2RECV_F0\n6SEND_F1,8RECV_F0\n7SEND_F0,7RECV_"
      "F1\n",
      {.issue = Issue::Inline}, true);
  EXPECT_EQ(c.report.verdict, Verdict::Deadlock);
  EXPECT_EQ(c.cycle(),
            "3: 6SEND_F1 -> 7RECV_F1 behind 7SEND_F0; 4: 7SEND_F0 -> 8RECV_F0 behind 6SEND_F1; ");
}

TEST(WaitFor, AHeadThatCanGoOnIsNoDeadlock) {
  // What a watchdog may see: rank 0 computes, rank 1 waits for it.
  const Program program = lower(read_order_csv("0F0,0B0\n1F0,1B0\n", "o"), CommPolicy{});
  Progress progress;
  progress.ended.assign(program.code.size(), 0);
  progress.left.assign(program.code.size(), 0);
  EXPECT_EQ(explain_stuck(program, progress).verdict, Verdict::Ok);
}

// --- States in which something still runs ---

/// How far a Program has come: the instructions of that text have ended.
Progress ended(const Program& program, std::vector<std::string> texts) {
  Progress progress;
  progress.ended.assign(program.code.size(), 0);
  progress.left = progress.ended;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (std::find(texts.begin(), texts.end(), program.text(id)) != texts.end())
      progress.ended[id] = 1;
  }
  return progress;
}

TEST(WaitFor, WhileARankComputesWhatWaitsForItMayStillGoOn) {
  const Program program =
      lower(read_order_csv("0F0,0B0\n1F0,1B0\n", "order.csv"), {.issue = Issue::Inline});
  const WaitReport report = explain_stuck(program, ended(program, {}));
  EXPECT_EQ(report.verdict, Verdict::Ok);
  ASSERT_EQ(report.stuck.size(), 2U);  // 0F0 computes, 1RECV_F0 waits for its SEND
  EXPECT_FALSE(report.stuck[0].for_good);
  EXPECT_FALSE(report.stuck[1].for_good);
}

TEST(WaitFor, TwoEndsThatHaveMetAreUnderWayAndNoCycle) {
  const Program program =
      lower(read_order_csv("0F0,0B0\n1F0,1B0\n", "order.csv"), {.issue = Issue::Inline});
  const WaitReport report = explain_stuck(program, ended(program, {"0F0"}));
  EXPECT_EQ(report.verdict, Verdict::Ok);
  EXPECT_TRUE(report.cycle.empty());
}

TEST(WaitFor, ACycleLastsWhateverElseRuns) {
  // Ranks 0 and 1 face each other; rank 2 computes, and rank 3 waits for it.
  const Program program = lower(read_order_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n"
                                               "3F5,3SEND_F5\n4RECV_F5,4F5\n",
                                               "order.csv"),
                                {.issue = Issue::Inline}, {.fragment = true});
  const WaitReport report = explain_stuck(program, ended(program, {}));
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_EQ(report.cycle.size(), 2U);
  ASSERT_EQ(report.stuck.size(), 4U);
  EXPECT_TRUE(report.stuck[0].for_good);
  EXPECT_TRUE(report.stuck[1].for_good);
  EXPECT_FALSE(report.stuck[2].for_good);
  EXPECT_FALSE(report.stuck[3].for_good);
}

TEST(WaitFor, ASendWithoutCreditMayStillMeetItsReceiveWhileOthersRun) {
  // Credit for one message, which 1RECV_F0 would give back; but 1RECV_F1 may be reached first.
  CommPolicy one{.issue = Issue::Inline};
  one.send_f = {Protocol::Kind::EagerMessages, 1};
  const Program program =
      lower(read_order_csv("0SEND_F0,0SEND_F1\n1F7,1RECV_F0,1RECV_F1\n2F9\n", "order.csv"), one,
            {.fragment = true});
  Progress progress = ended(program, {"0SEND_F0"});
  progress.left[0] = 1;
  const WaitReport report = explain_stuck(program, progress);
  EXPECT_EQ(report.verdict, Verdict::Ok);
  for (const StuckHead& head : report.stuck) EXPECT_FALSE(head.for_good);
}

}  // namespace wait_for_test
}  // namespace pipewright
