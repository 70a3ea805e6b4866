// Each fix on the smallest order that asks for it.
#include "planner/fix/fix.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/fix/difference.hpp"
#include "planner/fix/hoisting.hpp"
#include "planner/fix/listed_order.hpp"
#include "planner/fix/warm_up.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace fix_test {

/// nccl#479 as a whole order: both ranks send first, on one lane.
constexpr std::string_view kFacingSends =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

CostTable costs_of(const Order& order) {
  return CostTable::uniform(order.stages(), {.f = Nanoseconds(10), .b = Nanoseconds(20)},
                            Nanoseconds(1));
}

Order order_of(std::string_view csv) { return read_order_csv(csv, "order.csv"); }

FixReport fixed(std::string_view csv, const CommPolicy& policy) {
  const Order order = order_of(csv);
  return find_fixes(order, policy, costs_of(order));
}

const Fix* find(const FixReport& report, std::string_view name) {
  const auto found = std::find_if(report.fixes.begin(), report.fixes.end(),
                                  [&](const Fix& fix) { return fix.name == name; });
  return found == report.fixes.end() ? nullptr : &*found;
}

std::string row(const Order& order, std::size_t rank) {
  std::string text;
  for (const Cell& cell : order.ranks[rank]) text += (text.empty() ? "" : ",") + to_string(cell);
  return text;
}

TEST(Fix, AnOrderThatEndsIsLeftAlone) {
  const FixReport report = fixed("0F0,0B0\n1F0,1B0\n", CommPolicy{});
  EXPECT_EQ(report.verdict, Verdict::Ok);
  EXPECT_TRUE(report.fixes.empty());
  EXPECT_EQ(report.sentence, "it ends as it is: there is nothing to fix");
}

TEST(Fix, ConnectionsAreMadeBeforeTheStepWhereTheirFirstUseHangs) {
  // The two directions of Chimera send to each other first.
  const Order order = make_order("chimera", {2, 2, 1, {}});
  CommPolicy policy{.post = Post::Deferred,
                    .send_f = {Protocol::Kind::EagerUnlimited, 0},
                    .send_b = {Protocol::Kind::EagerUnlimited, 0}};
  EXPECT_EQ(find_fixes(order, policy, costs_of(order)).verdict, Verdict::Ok);
  policy.connect = Connect::FirstUse;
  const FixReport report = find_fixes(order, policy, costs_of(order));
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_FALSE(report.fixes.empty());
  EXPECT_EQ(report.fixes.front().name, "warm-up-exchange");
  EXPECT_EQ(report.fixes.front().difference,
            std::vector<std::string>{"connect: first-use -> ready"});
}

TEST(Fix, TheLeastNumberOfPlacesInFlightIsFound) {
  const std::string_view csv =
      "0F0,0F1,0F2,0RECV_B0,0RECV_B1,0RECV_B2,0SEND_F0,0SEND_F1,0SEND_F2,0B0,0B1,0B2\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2\n";
  // Three receives take three places; the first send gives back the first of them.
  const FixReport report = fixed(csv, {.in_flight = 2});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_FALSE(report.fixes.empty());
  EXPECT_EQ(report.fixes.front().name, "more-in-flight");
  EXPECT_EQ(report.fixes.front().difference, std::vector<std::string>{"in_flight: 2 -> 4"});
}

TEST(Fix, GroupingComesFirstWhereTwoSendsFaceEachOther) {
  const FixReport report = fixed(kFacingSends, {.issue = Issue::Inline});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_NE(find(report, "split-channel"), nullptr);
  const Fix* hoist = find(report, "hoist");
  ASSERT_NE(hoist, nullptr);
  // The cycle 0SEND_F1 - 1SEND_B0 is broken by the receive that has the shorter way.
  EXPECT_EQ(hoist->difference, std::vector<std::string>{"rank 0: 0RECV_B0 before 0SEND_F1"});
  EXPECT_EQ(row(hoist->order, 0), "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1");
  EXPECT_EQ(hoist->change.touches, Touches::Transfers);
  EXPECT_EQ(hoist->change.sentence,
            "move 1 receive earlier, to before the instruction that held "
            "it back");
}

TEST(Fix, TheStepIsComparedWithTheSameComputationsInBatches) {
  const FixReport report = fixed(kFacingSends, {.issue = Issue::Inline});
  const Fix* split = find(report, "split-channel");
  ASSERT_NE(split, nullptr);
  // By hand, F 10, B 20, transfer 1. Rank 1: F0 at 11-21, B0 21-41, its next receive is posted
  // then, F1 42-52, B1 52-72; one transfer and 0B1: 72 + 1 + 20.
  EXPECT_EQ(split->step_ns_after, 93);
  ASSERT_TRUE(split->step_ns_before);
  EXPECT_DOUBLE_EQ(split->cost_percent(), 100.0 * static_cast<double>(93 - *split->step_ns_before) /
                                              static_cast<double>(*split->step_ns_before));
}

TEST(Fix, AMismatchIsFixedByBringingReceivesIntoTheOrderOfTheSends) {
  const std::string_view csv =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";
  const FixReport report = fixed(csv, CommPolicy{});
  EXPECT_EQ(report.verdict, Verdict::Mismatch);
  const Fix* hoist = find(report, "hoist");
  ASSERT_NE(hoist, nullptr);
  EXPECT_EQ(hoist->difference, std::vector<std::string>{"rank 1: 1RECV_F0 before 1RECV_F1"});
}

TEST(Fix, ASendIsMovedWhereTwoReceivesFaceEachOther) {
  const FixReport report =
      fixed("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", {.issue = Issue::Inline});
  const Fix* hoist = find(report, "hoist");
  ASSERT_NE(hoist, nullptr);
  EXPECT_EQ(hoist->difference, std::vector<std::string>{"rank 0: 0SEND_F0 before 0RECV_B0"});
}

TEST(Fix, SplittingTheChannelFixAQueueSharedByBothDirections) {
  const FixReport report = fixed(kFacingSends, {.channel = Channel::Pair});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  const Fix* split = find(report, "split-channel");
  ASSERT_NE(split, nullptr);
  EXPECT_EQ(split->difference, std::vector<std::string>{"channel: pair -> edge"});
}

TEST(Fix, DeferredReceivesMayBePostedEarly) {
  const Order order = make_order("1f1b", {4, 8, 1, {}});
  const FixReport report =
      find_fixes(order, {.issue = Issue::Inline, .post = Post::Deferred}, costs_of(order));
  const Fix* early = find(report, "post-early");
  ASSERT_NE(early, nullptr);
  EXPECT_EQ(early->difference, std::vector<std::string>{"post: deferred -> early"});
  ASSERT_NE(find(report, "group"), nullptr);
  EXPECT_EQ(find(report, "group"), &report.fixes.front());
}

TEST(Fix, ACollectiveThatHoldsUpTheLaneIsTakenOffItWithTheTransfersPostedEarly) {
  // Rank 2 stands at a reduction whose other member waits, over two transfers, for rank 2.
  const FixReport report = fixed(
      "0F0@0,2RECV_F1,0SEND_F0,2F1@0,0REDUCE_GRAD,2I1@0,2SEND_B1,OPT,2W1,,0RECV_B0,,0I0@0,OPT,0W0,"
      "OPT\n"
      ",1RECV_F0,OPT,1RECV_F1,,,1F1@1,1SEND_F1,1F0@0,1RECV_B1,1SEND_F0,1I1@1,1SEND_B1,1W1@1,OPT,"
      "1RECV_B0,1I0@0,1SEND_B0,1W0@0\n"
      "0REDUCE_GRAD,0F1@0,0SEND_F1,2RECV_F0,0RECV_B1,0I1@0,0W1,2F0@0,2I0@0,2SEND_B0,,2W0,\n",
      {.issue = Issue::Inline, .channel = Channel::Pair, .post = Post::Deferred});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_EQ(report.fixes.size(), 1U);
  EXPECT_EQ(report.fixes.front().name, "split-channel-early");
}

TEST(Fix, GroupsNeedFewerMovesWhereGroupingAloneIsNotEnough) {
  const Order order = make_order("interleaved", {4, 8, 2, {}});
  const CommPolicy policy{.issue = Issue::Inline, .post = Post::Deferred};
  const FixReport report = find_fixes(order, policy, costs_of(order));
  EXPECT_EQ(find(report, "group"), nullptr);
  const Fix* both = find(report, "group-hoist");
  ASSERT_NE(both, nullptr);
  EXPECT_EQ(both->policy.issue, Issue::Grouped);
  EXPECT_EQ(both->difference.back(), "post: deferred -> early");
  const LowerOptions options;
  const Order listed = listed_order(order, policy);
  const auto grouped =
      hoisted(listed, {.issue = Issue::Grouped}, costs_of(order), options, HoistMoves::Fewest);
  const auto inlined =
      hoisted(listed, {.issue = Issue::Inline}, costs_of(order), options, HoistMoves::Fewest);
  ASSERT_TRUE(grouped && inlined);
  EXPECT_LT(grouped->moves.size(), inlined->moves.size());
}

TEST(Fix, WaitsOfComputationsAloneAreFixedByOneMoreWarmUp) {
  // Rank 0 waits for the gradient of micro-batch 0 before it makes the activation that rank 1 wants
  // before it makes that gradient.
  const FixReport report =
      fixed("0F0,2F0,2B0,0B0,0F1,2F1,2B1,0B1\n1F0,3F0,1F1,3B0,1B0,3F1,3B1,1B1\n", CommPolicy{});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_EQ(report.fixes.size(), 1u);
  const Fix& warm_up = report.fixes.front();
  EXPECT_EQ(warm_up.name, "warm-up");
  EXPECT_EQ(warm_up.change.touches, Touches::Computations);
  EXPECT_EQ(row(computations_of(warm_up.order), 0), "0F0,2F0,0F1,2B0,0B0,2F1,2B1,0B1");
  EXPECT_EQ(row(computations_of(warm_up.order), 1), "1F0,3F0,1F1,3B0,1B0,3F1,3B1,1B1");
  EXPECT_EQ(warm_up.difference,
            std::vector<std::string>{"rank 0: 1 more forward before its first backward"});
}

TEST(Fix, SaysThatOnlyAnotherOrderHelps) {
  // Backwards in the wrong order of stages: no forward to bring forward changes that.
  const FixReport report = fixed("0F0,0B0\n1F0,2F0,1B0,2B0\n", CommPolicy{});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  EXPECT_TRUE(report.fixes.empty());
  EXPECT_NE(report.sentence.find("only another order of them helps"), std::string::npos)
      << report.sentence;
  EXPECT_NE(report.sentence.find("1B0"), std::string::npos);
}

TEST(Fix, RefusesAnOrderThatIsNotWhole) {
  const FixReport report = fixed("0F0,0F1\n1F0,1B0\n", CommPolicy{});
  EXPECT_EQ(report.verdict, Verdict::Invalid);
  EXPECT_TRUE(report.fixes.empty());
  EXPECT_NE(report.sentence.find("not whole"), std::string::npos);
}

TEST(Fix, AWaitForSomethingOutsideAFragmentHasNoFix) {
  const Order order = order_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0\n");
  const FixReport report = find_fixes(order, CommPolicy{}, costs_of(order), {.fragment = true});
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  EXPECT_TRUE(report.fixes.empty());
  EXPECT_NE(report.sentence.find("lies outside"), std::string::npos) << report.sentence;
}

TEST(Hoisting, MovesOnEverySecondRankLetARingExchangeInTwoSteps) {
  // Four ranks, two chunks: every rank sends to the next before it receives (stage k*4 + r).
  const std::string_view ring =
      "0SEND_F1,4RECV_F0\n1SEND_F1,1RECV_F1\n2SEND_F1,2RECV_F1\n3SEND_F0,3RECV_F1\n";
  const Order order = order_of(ring);
  const CommPolicy inlined{.issue = Issue::Inline};
  const LowerOptions fragment{.fragment = true};
  const auto one = hoisted(order, inlined, costs_of(order), fragment, HoistMoves::Fewest);
  const auto two = hoisted(order, inlined, costs_of(order), fragment, HoistMoves::EverySecond);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->moves.size(), 1u);
  EXPECT_EQ(two->moves.size(), 2u);
  const auto step = [&](const Order& o) {
    const auto result = sim::simulate(lower(o, inlined, fragment), costs_of(order));
    EXPECT_TRUE(result.finished);
    return result.timeline.makespan_ns;
  };
  EXPECT_EQ(step(one->order), 4);  // one after the other round the ring, 1 ns each
  EXPECT_EQ(step(two->order), 2);
}

TEST(WarmUp, TakesEachForwardOnePlaceEarlier) {
  Order order = order_of("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n");
  ASSERT_TRUE(can_warm_up(order, RankId(0)));
  warm_up_once_more(order, RankId(0));
  EXPECT_EQ(row(order, 0), "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3");
}

TEST(WarmUp, IsNotForPairsVersionsOrListsWithoutForwardsLeft) {
  EXPECT_FALSE(can_warm_up(order_of("0F0,0F1,0B0,0B1\n"), RankId(0)));
  EXPECT_FALSE(can_warm_up(order_of("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"), RankId(0)));
  EXPECT_FALSE(can_warm_up(order_of("0F0@0,0B0@0,OPT,0F1@1,0B1@1,OPT\n"), RankId(0)));
}

}  // namespace fix_test
}  // namespace pipewright::planner
