// Where lowering puts the collectives of replicas that divide gradients and weights
// (docs/semantics.md §1.1), worked out by hand.
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace lower_sharding_test {

/// The first rank's list.
std::string listing(const Program& program) {
  std::string text;
  for (InstructionId id = 0; id < program.rank_begin[1]; ++id)
    text += (id > 0 ? " " : "") + program.text(id);
  return text;
}

Program lowered(std::string_view csv, const Sharding& sharding, Issue issue = Issue::Stream) {
  CommPolicy policy;
  policy.issue = issue;
  return lower(read_order_csv(csv, "order.csv"), policy,
               {.optimizer = true, .sharded = true, .sharding = sharding});
}

// Two stages on one rank, breadth first, and its replica.
constexpr std::string_view kBreadthFirst =
    "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n0F2,0F3,1F2,1F3,1B2,1B3,0B2,0B3\n";
// Depth first.
constexpr std::string_view kDepthFirst =
    "0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n0F2,1F2,1B2,0B2,0F3,1F3,1B3,0B3\n";

TEST(LowerSharding, BreadthFirstSumsEachStageOnce) {
  EXPECT_EQ(listing(lowered(kBreadthFirst, {.zero = 2})),
            "0F0 0F1 1F0 1F1 1B0 1B1 1REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD OPT 0UNSHARD 1UNSHARD");
}

TEST(LowerSharding, DepthFirstSumsBeforeAnotherStageMakesGradients) {
  EXPECT_EQ(listing(lowered(kDepthFirst, {.zero = 2})),
            "0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD 0F1 1F1 1B1 1REDUCE_GRAD 0B1 0REDUCE_GRAD "
            "OPT 0UNSHARD 1UNSHARD");
}

TEST(LowerSharding, WeightsAreHeldWhileTheirStageComputes) {
  EXPECT_EQ(listing(lowered(kBreadthFirst, {.zero = 3})),
            "0UNSHARD 0F0 0F1 0RESHARD 1UNSHARD 1F0 1F1 1B0 1B1 1RESHARD 0UNSHARD 1REDUCE_GRAD "
            "0B0 0B1 0RESHARD 0REDUCE_GRAD OPT");
}

TEST(LowerSharding, LookingAheadTheNextStageIsGatheredWhileOneComputes) {
  // Three stages: while 0 computes, 1 is gathered; while 1 does, 2, and 0 goes.
  EXPECT_EQ(listing(lowered("0F0,1F0,2F0,2B0,1B0,0B0\n0F1,1F1,2F1,2B1,1B1,0B1\n",
                            {.zero = 3, .ahead = 1})),
            "0UNSHARD 1UNSHARD 0F0 0RESHARD 2UNSHARD 1F0 2F0 2B0 2RESHARD 0UNSHARD 2REDUCE_GRAD "
            "1B0 1RESHARD 1REDUCE_GRAD 0B0 0RESHARD 0REDUCE_GRAD OPT");
}

TEST(LowerSharding, OnTheComputeLaneASumComesAfterWhatOthersWaitFor) {
  const std::string csv = "0F0,2F0,2B0,0B0\n1F0,1B0\n0F1,2F1,2B1,0B1\n1F1,1B1\n";
  EXPECT_EQ(listing(lowered(csv, {.zero = 3}, Issue::Inline)),
            "0UNSHARD 0F0 0SEND_F0 2RECV_F0 0RESHARD 2UNSHARD 2F0 2B0 2SEND_B0 0RECV_B0 "
            "2REDUCE_GRAD 2RESHARD 0UNSHARD 0B0 0REDUCE_GRAD 0RESHARD OPT");
}

TEST(LowerSharding, APairHoldsBothItsStages) {
  EXPECT_EQ(listing(lowered("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1\n"
                            "0F2,1F2,(0F3;1B2)OVERLAP_F_B,1F3,1B3,0B2,0B3\n",
                            {.zero = 3})),
            "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 0UNSHARD (0F1;1B0)OVERLAP_F_B 0RESHARD 1F1 1B1 "
            "1RESHARD 0UNSHARD 1REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD OPT");
}

TEST(LowerSharding, RanksOfOnePipelineThatShareStagesKeepToTheEnds) {
  // Stage 0 and 1 on both ranks, in opposite directions.
  const Program program = lowered("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", {.zero = 3});
  EXPECT_EQ(listing(program).substr(0, 17), "0UNSHARD 1UNSHARD");
  EXPECT_NE(listing(program).find("0RESHARD 1RESHARD OPT"), std::string::npos) << listing(program);
  EXPECT_EQ(sim::check(program, CostTable::uniform(2, {})).verdict, Verdict::Ok);
}

TEST(LowerSharding, AnOrdersOwnSumsStay) {
  EXPECT_EQ(
      listing(lowered("0F0,0F1,0B0,0B1,0REDUCE_GRAD\n0F2,0F3,0B2,0B3,0REDUCE_GRAD\n", {.zero = 2})),
      "0F0 0F1 0B0 0B1 0REDUCE_GRAD OPT 0UNSHARD");
}

TEST(LowerSharding, GroupsGatherApartAndSumTogether) {
  const Program program = lowered("0F0,0B0\n0F1,0B1\n0F2,0B2\n0F3,0B3\n", {.zero = 2, .groups = 2});
  ASSERT_EQ(program.collectives.size(), 3U);
  for (const Collective& one : program.collectives) {
    const bool sums = one.kind == ActionKind::ReduceGrad;
    EXPECT_EQ(one.members.size(), sums ? 4U : 2U);
    EXPECT_EQ(one.groups, sums ? 2 : 1);
  }
}

TEST(LowerSharding, AnAsynchronousOrderDividesTheUpdateAlone) {
  EXPECT_THROW(lowered("0F0@0,0B0@0,OPT\n", {.zero = 2}), InputError);
}

TEST(LowerSharding, AnOrderKeepsItsHeading) {
  const Order order = read_order_csv("# sharding zero=3 groups=2\n0F0,0B0\n", "order.csv");
  EXPECT_EQ(order.sharding, (Sharding{.zero = 3, .groups = 2}));
  EXPECT_EQ(write_order_csv(order), "# sharding zero=3 groups=2\n0F0,0B0\n");
  EXPECT_THROW(read_order_csv("# sharding zero=4\n0F0,0B0\n", "order.csv"), InputError);
  EXPECT_THROW(read_order_csv("# sharding degree=4\n0F0,0B0\n", "order.csv"), InputError);
}

TEST(LowerSharding, WhatIsMissingIsNamedByItsPlace) {
  const Order order = read_order_csv(
      "# sharding zero=3\n0UNSHARD,0F0,0RESHARD,0B0,0REDUCE_GRAD\n"
      "0UNSHARD,0F1,0REDUCE_GRAD,0B1\n",
      "order.csv");
  const std::vector<std::string> problems = problems_of(order);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_NE(problems[0].find("rank 0, action 4: 0B0 has no weights"), std::string::npos)
      << problems[0];
  EXPECT_NE(problems[1].find("rank 1, action 4: 0B1 has no REDUCE_GRAD"), std::string::npos)
      << problems[1];
}

}  // namespace lower_sharding_test
}  // namespace pipewright
