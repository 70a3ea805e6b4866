// Flight Recorder dumps: what hangs, for whom, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/sim/dumped_jobs.hpp"

namespace pipewright::sim {
namespace dumps_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Dumps, ARankThatDoesNotComeIsMissing) {
  Job job(4);
  job.all({0, 1, 2, 3}, {.group = "0", .operation = "all_reduce", .state = "completed"});
  job.all({0, 2, 3}, {"0", "all_gather"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  ASSERT_EQ(explained.standstills.size(), 1U);
  EXPECT_THAT(numbers(explained.standstills[0].missing), ElementsAre(1));
  EXPECT_EQ(explained.standstills[0].calls.size(), 3U);
  EXPECT_THAT(numbers(explained.absent), ElementsAre(1));
  EXPECT_EQ(
      text_of(explained),
      "ranks 0, 2 and 3 wait in all_gather 2 of group 0 (default_pg), [8] float32, started, "
      "for rank 1, which has not called it\n"
      "rank 1 waits in no call: the last of its 1 is all_reduce 1 of group 0 (default_pg), [8] "
      "float32, completed\n");
}

TEST(Dumps, AnotherOperationIsAMismatch) {
  Job job(3);
  job.all({0, 2}, {"0", "all_reduce"});
  job.call(1, {"0", "broadcast"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Mismatch);
  ASSERT_EQ(explained.standstills.size(), 1U);
  EXPECT_EQ(explained.standstills[0].differ, "kind");
  EXPECT_THAT(text_of(explained), HasSubstr("differ in operation:\n  ranks 0 and 2: all_reduce 1"));
}

TEST(Dumps, AnOperationThatOrdersHaveNoKindForIsOneOfItsOwn) {
  Job job(2);
  job.call(0, {"0", "all_reduce"});
  job.call(1, {"0", "reduce"});
  EXPECT_EQ(job.explained().standstills.at(0).differ, "data");
  Job alike(2);
  alike.all({0, 1}, {"0", "some_new_collective"});
  EXPECT_EQ(alike.explained().verdict(), Verdict::Ok);
}

TEST(Dumps, AnotherSizeOrTypeIsAMismatch) {
  Job sizes(2);
  sizes.call(0, {"0", "all_reduce", "started", {8}});
  sizes.call(1, {"0", "all_reduce", "started", {9}});
  EXPECT_EQ(sizes.explained().standstills.at(0).differ, "shape");
  EXPECT_THAT(text_of(sizes.explained()), HasSubstr("differ in size"));
  Job types(2);
  types.call(0, {"0", "all_reduce", "started", {8}, "Float"});
  types.call(1, {"0", "all_reduce", "started", {8}, "BFloat16"});
  EXPECT_EQ(types.explained().standstills.at(0).differ, "type");
}

TEST(Dumps, OnlyWhatMembersHaveToAgreeAboutIsCompared) {
  Job job(2);
  job.call(0, {"0", "all_reduce", "started", {2, 4}});  // as many elements
  job.call(1, {"0", "all_reduce", "started", {8}});
  job.call(0, {.group = "0", .operation = "gather", .sizes = {8}, .outputs = {8, 8}});
  job.call(1, {.group = "0", .operation = "gather", .sizes = {8}, .outputs = {0}});
  job.call(0, {.group = "0", .operation = "scatter", .sizes = {16}, .outputs = {8}});
  job.call(1, {.group = "0", .operation = "scatter", .sizes = {0}, .outputs = {8}});
  job.call(0, {"0", "all_to_all", "started", {3}});
  job.call(1, {"0", "all_to_all", "started", {5}});
  job.call(0, {"0", "all_gather", "started", {8}});
  job.call(1, {"0", "_all_gather_base", "started", {8}});
  EXPECT_EQ(job.explained().verdict(), Verdict::Ok);
}

TEST(Dumps, RanksThatWaitForOneAnotherAreACycle) {
  Job job(2);
  job.group("1", "tp", {0, 1});
  job.group("2", "dp", {0, 1});
  job.call(0, {"1", "all_reduce"});
  job.call(1, {"2", "all_gather"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  EXPECT_EQ(explained.standstills.size(), 2U);
  EXPECT_EQ(cycle_of(explained), "0>1 1>0");
  EXPECT_THAT(explained.absent, IsEmpty());
  EXPECT_THAT(
      text_of(explained),
      HasSubstr("cycle: rank 0 waits in all_reduce 1 of group 1 (tp) for rank 1, which stands "
                "in another call and has not come to it"));
}

TEST(Dumps, AChainOfWaitsEndsAtTheRankThatIsAbsent) {
  Job job(3);
  job.group("1", "a", {0, 1});
  job.group("2", "b", {1, 2});
  job.call(0, {"1", "all_reduce"});
  job.call(1, {"2", "all_reduce"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  EXPECT_EQ(cycle_of(explained), "");
  EXPECT_THAT(numbers(explained.absent), ElementsAre(2));
  EXPECT_THAT(text_of(explained), HasSubstr("rank 2 waits in no call: it has made none"));
}

TEST(Dumps, ACallThatIsLeftOutShowsWhereTheCallsCameFrom) {
  Job job(3);
  for (const int rank : {0, 1, 2}) {
    for (const int line : {10, 20, 30}) {
      if (rank == 1 && line == 20) continue;
      const bool last = line == (rank == 1 ? 40 : 30);
      job.call(rank, {.group = "0",
                      .operation = "all_reduce",
                      .state = last ? "started" : "completed",
                      .file = "/home/me/train.py",
                      .line = line});
    }
  }
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  ASSERT_EQ(explained.shifts.size(), 1U);
  EXPECT_TRUE(explained.shifts[0].left_out);
  EXPECT_THAT(
      text_of(explained),
      HasSubstr(
          "rank 1 seems to have left out all_reduce 2 of group 0 (default_pg), [8] "
          "float32, completed, at train.py:20 (main): what it calls there, rank 0 calls next"));
}

TEST(Dumps, WhatComesNextIsKnownFromTheRoundBefore) {
  Job skips(3);  // rank 2 leaves out the second round's sum
  for (const int rank : {0, 1, 2}) {
    skips.call(rank, {"0", "all_reduce", "completed"});
    skips.call(rank, {"0", "barrier", "completed"});
    skips.call(rank, {"0", rank == 2 ? "barrier" : "all_reduce"});
  }
  const Explanation explained = skips.explained();
  ASSERT_EQ(explained.shifts.size(), 1U);
  EXPECT_EQ(explained.shifts[0].call.rank, RankId(2));
  EXPECT_TRUE(explained.shifts[0].left_out);
}

TEST(Dumps, ACallTooManyIsToldFromOneThatIsLeftOut) {
  Job job(3);
  for (const int rank : {0, 1, 2}) {
    job.call(rank, {"0", "all_reduce", "completed"});
    if (rank == 2) job.call(rank, {"0", "barrier"});
    job.call(rank, {"0", "all_gather"});
  }
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Mismatch);
  ASSERT_EQ(explained.shifts.size(), 1U);
  EXPECT_FALSE(explained.shifts[0].left_out);
  EXPECT_EQ(explained.shifts[0].call.rank, RankId(2));
}

TEST(Dumps, CallsMeetByTheirNumbersWhereARecordHasLostItsBeginning) {
  Job job(2);
  for (int i = 0; i < 5; ++i) job.all({0, 1}, {"0", "all_reduce", "completed"});
  job.all({0, 1}, {"0", "all_gather"});
  job.forget(1, 3);
  EXPECT_EQ(job.explained().verdict(), Verdict::Ok);
  Job gone(2);  // and a group of which nothing is left
  gone.group("1", "tp", {0, 1});
  gone.all({0, 1}, {"1", "all_reduce", "completed"});
  gone.all({0, 1}, {"0", "all_gather"});
  gone.forget(1, 1);
  EXPECT_EQ(gone.explained().verdict(), Verdict::Ok);
}

TEST(Dumps, WhatHasEndedIsOk) {
  Job job(2);
  job.all({0, 1}, {"0", "all_reduce", "completed"});
  EXPECT_EQ(text_of(job.explained()), "every call has ended\n");
  job.all({0, 1}, {"0", "all_gather"});
  const Explanation running = job.explained();
  EXPECT_EQ(running.verdict(), Verdict::Ok);
  EXPECT_THAT(text_of(running), HasSubstr("2 calls had not ended"));
}

TEST(Dumps, OnNcclCommunicatorsThatCrossOnADeviceAreACycle) {
  for (const char* backend : {"nccl", "gloo"}) {
    Job job(2, backend);
    job.group("1", "ep", {0, 1});
    job.group("2", "dp", {0, 1});
    job.call(0, {"1", "all_to_all"});
    job.call(0, {"2", "reduce_scatter"});
    job.call(1, {"2", "reduce_scatter"});
    job.call(1, {"1", "all_to_all"});
    const Explanation explained = job.explained();
    if (backend == std::string("gloo")) {
      EXPECT_EQ(explained.verdict(), Verdict::Ok);
      continue;
    }
    EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
    EXPECT_EQ(explained.guarantee, Guarantee::ByDevice);
    EXPECT_EQ(cycle_of(explained), "0>1 1>0");
    EXPECT_THAT(
        text_of(explained),
        HasSubstr("rank 0 waits in all_to_all 1 of group 1 (ep) for rank 1, whose call stands "
                  "behind reduce_scatter 1 of group 2 (dp)"));
  }
}

TEST(Dumps, SendsThatBothComeFirstHangOnTheCommunicatorOfTheirPair) {
  Job job(2, "nccl");
  job.group("1", "pp", {0, 1});
  job.call(0, {"1", "send 0->1"});
  job.call(0, {"1", "recv 0<-1"});
  job.call(1, {"1", "send 1->0"});
  job.call(1, {"1", "recv 1<-0"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  EXPECT_EQ(explained.guarantee, Guarantee::ByCommunicator);
  EXPECT_EQ(cycle_of(explained), "0>1 1>0");
}

TEST(Dumps, InABatchTheyDoNot) {
  Job job(2, "nccl");
  job.batch(0, {{"0", "send 0->1"}, {"0", "recv 0<-1"}});
  job.batch(1, {{"0", "send 1->0"}, {"0", "recv 1<-0"}});
  EXPECT_EQ(job.explained().verdict(), Verdict::Ok);
  EXPECT_EQ(job.dump(0).calls.size(), 2U);
  EXPECT_EQ(job.dump(0).calls[0].state, CallState::Started);
}

TEST(Dumps, ARingOfSendsHangsWhereAGroupHasOneCommunicator) {
  Job job(3, "nccl");
  for (const int rank : {0, 1, 2}) {
    const std::string own = std::to_string(rank), next = std::to_string((rank + 1) % 3),
                      before = std::to_string((rank + 2) % 3);
    job.call(rank, {"0", "send " + own + "->" + next});
    job.call(rank, {"0", "recv " + own + "<-" + before});
  }
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  EXPECT_EQ(explained.guarantee, Guarantee::ByGroup);
  EXPECT_EQ(explained.cycle.size(), 3U);
}

TEST(Dumps, ATransferWithoutItsOtherEndNamesThePeer) {
  Job job(3, "nccl");
  job.group("5", "pp", {1, 2});  // places in the group are not ranks
  job.call(1, {"5", "send 0->1"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  ASSERT_EQ(explained.standstills.size(), 1U);
  EXPECT_THAT(numbers(explained.standstills[0].missing), ElementsAre(2));
  EXPECT_THAT(numbers(explained.absent), ElementsAre(2));
  EXPECT_THAT(text_of(explained), HasSubstr("rank 1 waits in send to rank 2 in group 5 (pp)"));
}

TEST(Dumps, TransfersThatMeetAndDifferAreAMismatch) {
  Job job(2, "nccl");
  job.call(0, {"0", "send 0->1", "started", {8}, "Long"});
  job.call(1, {"0", "recv 1<-0", "started", {8}, "BFloat16"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Mismatch);
  EXPECT_EQ(explained.standstills.at(0).differ, "type");
}

TEST(Dumps, ASendThatHasLeftAwaitsNothing) {
  Job job(2, "nccl");
  job.call(0, {"0", "send 0->1", "completed"});
  EXPECT_EQ(job.explained().verdict(), Verdict::Ok);
}

TEST(Dumps, GroupsOfOneNameAndOtherRanksAreApart) {
  Job job(4);
  for (const int rank : {0, 1}) job.group("1", "tp", {0, 1}), (void)rank;
  job.group("1", "tp", {2, 3});
  job.all({0, 1, 2, 3}, {"1", "all_reduce", "completed"});
  job.all({0, 1}, {"1", "all_reduce"});
  job.call(2, {"1", "all_reduce"});
  const Explanation explained = job.explained();
  ASSERT_EQ(explained.standstills.size(), 1U);
  EXPECT_THAT(numbers(explained.standstills[0].missing), ElementsAre(3));
}

}  // namespace dumps_test
}  // namespace pipewright::sim
