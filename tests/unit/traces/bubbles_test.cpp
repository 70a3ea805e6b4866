// Causes of bubbles on Programs small enough to work out by hand.
#include "traces/analysis/bubbles.hpp"

#include <gtest/gtest.h>

#include "tests/support/traced.hpp"

namespace pipewright::traces {
namespace bubbles_test {

/// Sum of a cause on a rank.
std::int64_t of(const BubbleReport& report, int rank, BubbleCause cause) {
  return report.ranks[static_cast<std::size_t>(rank)].of(cause);
}

std::int64_t not_busy(const test::Traced& t) {
  const Figures figures = figures_of(t.program, t.timeline, t.costs);
  std::int64_t rest = figures.makespan_ns * t.program.ranks();
  for (const RankFigures& rank : figures.ranks) rest -= rank.busy_ns;
  return rest;
}

TEST(Bubbles, FillDrainDataAndTransfer) {
  // 0F0 [0,1000], 1F0 [1500,2500], 1B0 [2500,4500], 0B0 [5000,7000]. Rank 0 waits from 1000: for
  // 1B0's data until 4500, then 500 for its message.
  const auto t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=1000,B=2000,comm=500");
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 0, BubbleCause::Fill), 0);
  EXPECT_EQ(of(report, 0, BubbleCause::Data), 3500);
  EXPECT_EQ(of(report, 0, BubbleCause::Transfer), 500);
  EXPECT_EQ(of(report, 0, BubbleCause::Drain), 0);
  EXPECT_EQ(of(report, 1, BubbleCause::Fill), 1500);
  EXPECT_EQ(of(report, 1, BubbleCause::Drain), 2500);
  EXPECT_EQ(report.total.sum(), 8000);  // 2 * 7000 - 6000
  ASSERT_EQ(report.bubbles.size(), 4U);
  EXPECT_EQ(t.program.text(report.bubbles[0].waiting), "0B0");
  EXPECT_EQ(t.program.text(report.bubbles[0].waits_for), "1B0");
  EXPECT_EQ(t.program.text(report.bubbles[1].waits_for), "0RECV_B0");
}

/// Stage 0 takes 10 for F, stage 1 takes 3.
CostTable uneven(std::int64_t comm) {
  CostTable costs = CostTable::uniform(2, {.f = Nanoseconds(10)}, Nanoseconds(comm));
  costs.stages[1].f = Nanoseconds(3);
  return costs;
}

TEST(Bubbles, ImbalanceIsThePartByWhichTheFeedingActionIsLonger) {
  // 0F0 [0,10], 0F1 [10,20]; comm 1: 1F0 [11,14], 1F1 [21,24]. The gap [14,21): 0F1 is made at 20,
  // it is 10 - 3 = 7 longer than 1F1, but only 6 were waited for: imbalance 6, then 1 for the
  // message.
  const Order order = read_order_csv("0F0,0F1\n1F0,1F1\n", "order.csv");
  const auto t = test::traced(order, comm_policy_preset("ideal"), uneven(1));
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 1, BubbleCause::Imbalance), 6);
  EXPECT_EQ(of(report, 1, BubbleCause::Data), 0);
  EXPECT_EQ(of(report, 1, BubbleCause::Transfer), 1);
  EXPECT_EQ(of(report, 1, BubbleCause::Fill), 11);
  EXPECT_EQ(of(report, 0, BubbleCause::Drain), 4);
  EXPECT_EQ(report.total.sum(), not_busy(t));
}

TEST(Bubbles, EqualStagesHaveNoImbalance) {
  const auto t = test::traced_schedule("1f1b", 4, 8, 1, "ideal", "F=10,B=20");
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(report.total.of(BubbleCause::Imbalance), 0);
  EXPECT_EQ(report.total.of(BubbleCause::Transfer), 0);
  // (p - 1)(F + B) on each rank.
  EXPECT_EQ(report.total.sum(), 4 * 3 * 30);
  // Rank r starts after r forwards and ends r backwards before the end.
  EXPECT_EQ(report.total.of(BubbleCause::Fill), (1 + 2 + 3) * 10);
  EXPECT_EQ(report.total.of(BubbleCause::Drain), (1 + 2 + 3) * 20);
}

TEST(Bubbles, InlineTransfersHoldTheLane) {
  // Inline rendezvous, comm 4. Rank 0: F0 [0,10], send [10,14], F1 [14,24], send [24,28]. Rank 1:
  // recv [0,14], F0 [14,17], recv [17,28], F1 [28,31]. The send is a transfer. Of rank 1's gap
  // [17,28) the 7 until 24 wait for 0F1, which is 7 longer than 1F1; the message takes the other 4.
  const Order order =
      read_order_csv("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1\n", "order.csv");
  const auto t = test::traced(order, comm_policy_preset("nccl-one-stream"), uneven(4), true);
  ASSERT_EQ(t.timeline.makespan_ns, 31);
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 0, BubbleCause::Transfer), 4);
  EXPECT_EQ(of(report, 0, BubbleCause::Drain), 7);
  EXPECT_EQ(of(report, 1, BubbleCause::Fill), 14);
  EXPECT_EQ(of(report, 1, BubbleCause::Imbalance), 7);
  EXPECT_EQ(of(report, 1, BubbleCause::Transfer), 4);
  EXPECT_EQ(report.total.sum(), not_busy(t));
}

TEST(Bubbles, AGroupHoldsTheLaneUntilItsLastMember) {
  // Rank 0's group: the send of F0 to rank 1 and the receive of B0 from it. comm 4. F0 [0,10]; the
  // send moves [10,14]; 1F0 [14,17]; 1B0 [17,37]; its message [37,41]; 0B0 [41,61].
  const Order order =
      read_order_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "order.csv");
  CostTable costs = uneven(4);
  for (StageCosts& stage : costs.stages) stage.b = Nanoseconds(20);
  const auto t = test::traced(order, {.issue = Issue::Grouped}, costs);
  ASSERT_EQ(t.timeline.makespan_ns, 61);
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 0, BubbleCause::Data), 27);  // [10,37)
  EXPECT_EQ(of(report, 0, BubbleCause::Transfer), 4);
  EXPECT_EQ(report.total.sum(), not_busy(t));
}

TEST(Bubbles, WhatStartsLateThoughAllIsThereIsOverhead) {
  auto t =
      test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=1000,B=2000,comm=500");
  // As a run might measure it: 0B0 begins 5 ns after its gradient arrived.
  t.timeline.start[t.id("0B0")] += 5;
  t.timeline.end[t.id("0B0")] += 5;
  t.timeline.makespan_ns += 5;
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 0, BubbleCause::Overhead), 5);
  EXPECT_EQ(of(report, 0, BubbleCause::Transfer), 500);
  EXPECT_EQ(report.total.sum(), not_busy(t));
}

TEST(Bubbles, TheRestOfAStuckRankIsStuck) {
  // 0B0 waits for a gradient that nobody sends; rank 1 has two actions to do and ends at 2000.
  const auto t = test::traced_csv("0F0,0RECV_B0,0B0\n1F1,1F2\n", comm_policy_preset("torch"),
                                  "F=1000,B=2000", true);
  ASSERT_FALSE(t.finished);
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 0, BubbleCause::Stuck), 1000);
  EXPECT_EQ(of(report, 1, BubbleCause::Stuck), 0);
  EXPECT_EQ(report.total.sum(), not_busy(t));
}

TEST(Bubbles, ARankWithoutWorkIsAllFill) {
  const Order order{{{*parse_cell("0F0")}, {}}, Placement::explicit_stages({RankId(0)}, 2), 1};
  const auto t = test::traced(order, comm_policy_preset("torch"), parse_costs("F=10,B=1", 1), true);
  const BubbleReport report = explain_bubbles(t.program, t.timeline);
  EXPECT_EQ(of(report, 1, BubbleCause::Fill), 10);
  EXPECT_EQ(report.total.sum(), 10);
}

}  // namespace bubbles_test
}  // namespace pipewright::traces
