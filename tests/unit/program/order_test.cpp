#include "core/order/order.hpp"
#include "core/order/problems.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace pipewright {
namespace order_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string complaint(std::string_view csv) {
  try {
    read_order_csv(csv, "order.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(OrderCsv, KeepsRowsIdleSlotsAndPlacement) {
  const Order order = read_order_csv("0F0,,2F0,2B0,0B0\n , 1F0 ,3F0,3B0,1B0,,\n", "order.csv");
  EXPECT_EQ(order.rank_count(), 2);
  EXPECT_EQ(order.stages(), 4);
  EXPECT_EQ(order.micro_batches, 1);
  EXPECT_EQ(order.placement.rank_of(StageId(3), MicroBatchId(0)), RankId(1));
  EXPECT_EQ(write_order_csv(order), "0F0,,2F0,2B0,0B0\n,1F0,3F0,3B0,1B0\n");
}

TEST(OrderCsv, PointsAtTheBadCell) {
  const std::string message = complaint("0F0,0B0\n1F0,1X0,1B0\n");
  EXPECT_THAT(message, HasSubstr("order.csv"));
  EXPECT_THAT(message, HasSubstr("row 2, cell 2"));
  // The arrow stands under the cell: four characters of the line come before it.
  EXPECT_THAT(message, HasSubstr("\n  1F0,1X0,1B0\n      ^"));
}

TEST(OrderCsv, RefusesWhatCannotBeAnOrder) {
  EXPECT_THAT(complaint(""), HasSubstr("found none"));
  EXPECT_THAT(complaint("\n,,\n"), HasSubstr("found none"));
  EXPECT_THAT(complaint("0SEND_B0\n"), HasSubstr("no stage at its other end"));
  EXPECT_THAT(complaint("0F900000000\n"), HasSubstr("too large"));
  EXPECT_THAT(complaint("70000F0\n"), HasSubstr("too large"));
  // 190 million pairs of stage and micro-batch, each with a place in a table.
  EXPECT_THAT(
      complaint("0F0\n1F0\n1F372122\n0F0\n511F0\n"),
      HasSubstr("512 stages and 372123 micro-batches are named, and 5 actions stand there"));
}

TEST(OrderCsv, AFragmentPlacesStagesByTheirTransfers) {
  // PyTorch issue 172668: stage 1 is known on rank 1 by its send.
  const Order order = read_order_csv("0SEND_F1,2RECV_F0,2F0\n1SEND_F0,1RECV_F1,1F1\n", "f.csv");
  EXPECT_EQ(order.placement.rank_of(StageId(0), MicroBatchId(0)), RankId(0));
  EXPECT_EQ(order.placement.rank_of(StageId(1), MicroBatchId(0)), RankId(1));
  EXPECT_EQ(order.placement.rank_of(StageId(2), MicroBatchId(0)), RankId(0));
}

TEST(OrderCsv, ReplicasPlaceByMicroBatch) {
  const Order order = read_order_csv("0F0,0B0\n0F1,0B1\n1F0,1B0,1F1,1B1\n", "rr.csv");
  EXPECT_TRUE(order.placement.looks_at_micro_batch());
  EXPECT_EQ(order.placement.rank_of(StageId(0), MicroBatchId(0)), RankId(0));
  EXPECT_EQ(order.placement.rank_of(StageId(0), MicroBatchId(1)), RankId(1));
  EXPECT_THAT(problems_of(order), IsEmpty());
}

TEST(OrderProblems, NamesWhatIsMissingDoubledOrMixed) {
  const auto problems = [](std::string_view csv) {
    std::string all;
    for (const auto& problem : problems_of(read_order_csv(csv, "o"))) all += problem + "\n";
    return all;
  };
  EXPECT_EQ(problems("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(problems("0F0,0I0,0W0\n1F0,1B0\n"), "");
  EXPECT_THAT(problems("0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n"), HasSubstr("0F1 is missing"));
  EXPECT_THAT(problems("0F0,0F0,0B0\n1F0,1B0\n"), HasSubstr("0F0 is there 2 times"));
  EXPECT_THAT(problems("0F0\n1F0,1B0\n"),
              HasSubstr("backward of stage 0 for micro-batch 0 is missing"));
  EXPECT_THAT(problems("0F0,0I0\n1F0,1B0\n"), HasSubstr("0W0 is missing"));
  EXPECT_THAT(problems("0F0,0I0,0W0,0B0\n1F0,1B0\n"), HasSubstr("doubled or mixed"));
}

TEST(OrderProblems, VersionsHaveToExistAndToAgree) {
  const auto problems = [](std::string_view csv) {
    std::string all;
    for (const auto& problem : problems_of(read_order_csv(csv, "o"))) all += problem + "\n";
    return all;
  };
  EXPECT_EQ(problems("0F0@0,0F1@0,0B0@0,OPT,0F2@1,0B1@0,OPT,0B2@1,OPT\n"), "");
  EXPECT_EQ(problems("0F0@0,0I0@0,OPT,0W0\n"), "");
  EXPECT_EQ(problems("0F0@0,0F1@2,0B0@0,OPT,0B1@2\n").substr(0, 57),
            "0F1@2 (rank 0, action 2) uses weights that do not exist y");
  EXPECT_THAT(problems("0F0@0,0B0@0,OPT,0F1@1,0B1@0\n"),
              HasSubstr("0B1@0 (rank 0, action 5) uses other weights than the forward, which names "
                        "version 1"));
  EXPECT_THAT(problems("0F0@0,0I0@0,OPT,0W0@1\n"), HasSubstr("0W0@1 (rank 0, action 4)"));
  EXPECT_THAT(problems("0F0@0,0B0\n"), HasSubstr("0B0 (rank 0, action 2) names no weight version"));
  EXPECT_THAT(problems("0F0@0,1F0@0,(0F1@0;1B0@1)OVERLAP_F_B,1F1@0,1B1@0,0B0@0,0B1@0\n"),
              HasSubstr("1B0@1 (rank 0, action 3)"));
}

TEST(OrderProblems, ReplicasNeedEquallyManyReductions) {
  const auto order = read_order_csv("0F0,0B0,0REDUCE_GRAD\n0F1,0B1\n", "o");
  EXPECT_THAT(problems_of(order),
              ElementsAre("stage 0 has replicas, but 1 REDUCE_GRAD on rank 0 and 0 on rank 1: each "
                          "needs a partner"));
  EXPECT_THAT(problems_of(read_order_csv("0F0,0B0,0REDUCE_GRAD\n0F1,0B1,0REDUCE_GRAD\n", "o")),
              IsEmpty());
}

TEST(OrderProblems, WrittenTransfersNeedBothEnds) {
  const Order whole = read_order_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "o");
  EXPECT_THAT(problems_of(whole), IsEmpty());
  const Order torn = read_order_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "o");
  EXPECT_THAT(problems_of(torn),
              testing::ElementsAre(
                  "rank 0, action 2: expected one 0SEND_F0 and one 1RECV_F0, found 1 and 0"));
}

std::vector<std::string> problems_in(std::string_view csv) {
  return problems_of(read_order_csv(csv, "o"));
}

TEST(OrderPlaces, OfWhatIsMissing) {
  EXPECT_THAT(problems_in("0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n"),
              ElementsAre("rank 0, action 3: 0F1 is missing"));
  EXPECT_THAT(problems_in("0F0,0B0\n1F0,1B0,,1F1\n").back(),
              HasSubstr("rank 1, action 4: the backward of stage 1 for micro-batch 1 is missing"));
  EXPECT_THAT(problems_in("0F0,,0I0\n1F0,1B0\n"), ElementsAre("rank 0, action 3: 0W0 is missing"));
}

TEST(OrderPlaces, OfBothWhereSomethingIsDoubledMixedOrMisplaced) {
  EXPECT_THAT(problems_in("0F0,0B0,0F0\n1F0,1B0\n"),
              ElementsAre("rank 0, action 3: 0F0 is there 2 times, first at rank 0, action 1"));
  EXPECT_THAT(problems_in("0F0,0I0,0W0,0B0\n1F0,1B0\n"),
              ElementsAre(HasSubstr("0B0 (rank 0, action 4), 0I0 (rank 0, action 2), 0W0 (rank 0, "
                                    "action 3); expected one B, or one I and one W")));
  EXPECT_THAT(problems_in("0F0,0W0,0B0\n1F0,1B0\n"),
              ElementsAre("rank 0, action 2: 0W0 is doubled or mixed: 0B0 (rank 0, action 3) does "
                          "its work already"));
  // Both rows compute stage 1: the placement looks at the micro-batch, and m0 lives on rank 1.
  EXPECT_THAT(problems_in("0F0,0B0,1F0\n1F0,1B0\n"),
              ElementsAre("rank 0, action 3: 1F0 stands on rank 0, but stage 1 is on rank 1 (rank "
                          "1, action 1)",
                          "rank 1, action 1: 1F0 is there 2 times, first at rank 0, action 3"));
}

TEST(OrderPlaces, OfAnEmptyRankAndAnEmptyStage) {
  EXPECT_THAT(problems_in("0F0,0B0\nOPT\n"),
              ElementsAre(HasSubstr("rank 1 computes nothing: its list has 1 actions")));
  EXPECT_THAT(
      problems_in("0F0,0B0\n2F0,2B0\n"),
      ElementsAre(HasSubstr("rank 0, action 1 (0F0): stage 1 is empty: no rank computes it")));
}

TEST(OrderPlaces, OfABackwardThatStandsBeforeWhatItNeeds) {
  EXPECT_THAT(problems_in("0B0,0F0\n1F0,1B0\n"),
              ElementsAre("rank 0, action 1: 0B0 stands before the 0F0 that it needs (rank 0, "
                          "action 2): the rank can never go on"));
  EXPECT_THAT(problems_in("0F0,0W0,0I0\n1I0,1F0,1W0\n"),
              ElementsAre(HasSubstr("rank 0, action 2: 0W0 stands before the 0I0"),
                          HasSubstr("rank 1, action 1: 1I0 stands before the 1F0")));
  // The two of a pair are under way together.
  EXPECT_THAT(problems_in("(0F0;0B0)OVERLAP_F_B\n1F0,1B0\n"), IsEmpty());
}

TEST(OrderPlaces, OfTransferEnds) {
  EXPECT_THAT(
      problems_in("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
      ElementsAre("rank 0, action 3: expected one 0SEND_F0 and one 1RECV_F0, found 2 and 1"));
  EXPECT_THAT(problems_in("0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"),
              ElementsAre("rank 0, action 1: expected one 0SEND_F0 and one 1RECV_F0, found 0 and "
                          "0"));
}

TEST(OrderNotes, FewerMicroBatchesThanRanksAreNoFault) {
  const Order order = read_order_csv("0F0,0B0\n1F0,1B0\n", "o");
  EXPECT_THAT(problems_of(order), IsEmpty());
  EXPECT_THAT(notes_of(order), ElementsAre(HasSubstr("1 micro-batch on 2 ranks")));
  EXPECT_THAT(notes_of(read_order_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "o")), IsEmpty());
}

TEST(OrderProblems, AWaitNeedsItsOwnSendOrReductionBeforeIt) {
  const auto problems = [](std::string_view csv) { return problems_of(read_order_csv(csv, "o")); };
  const std::string other = "1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_THAT(problems("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n" + other), IsEmpty());
  EXPECT_THAT(problems("0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n" + other),
              ElementsAre(HasSubstr("rank 0, action 2: 0WAIT_SEND_F0 waits for 0SEND_F0, which "
                                    "comes after it (rank 0, action 3)")));
  EXPECT_THAT(
      problems("0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0\n" + other),
      ElementsAre(HasSubstr("rank 0, action 4: 0WAIT_SEND_F0 waits for 0SEND_F0 once more")));
  EXPECT_THAT(problems("0F0,0SEND_F0,0RECV_B0,0B0,1WAIT_SEND_B0\n" + other),
              ElementsAre(HasSubstr("1WAIT_SEND_B0 waits for 1SEND_B0, which the rank does not")));
  EXPECT_THAT(
      problems("0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n"),
      ElementsAre(HasSubstr("0WAIT_REDUCE_GRAD waits for 0REDUCE_GRAD, which comes after")));
  EXPECT_THAT(problems("0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"), IsEmpty());
}

/// Lowering would put sends behind computations and know nothing of the waits' places.
TEST(OrderProblems, AnOrderWithWaitsWritesItsTransfers) {
  const Order order = read_order_csv("0F0,0WAIT_SEND_F0,0B0\n1F0,1B0\n", "o");
  EXPECT_TRUE(order.has_transfers());
  EXPECT_THAT(problems_of(order), ::testing::Contains(HasSubstr("an order with waits writes")));
}

}  // namespace order_test
}  // namespace pipewright
