// What Flight Recorder dumps say and leave out, and which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/dumps/dump_files.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/unit/sim/dumped_jobs.hpp"

namespace pipewright::sim {
namespace dumps_test {

using testing::ElementsAre;
using testing::HasSubstr;

/// As gloo records it: no members of groups, and a state that never moves.
Job as_gloo_is(int ranks, const std::vector<std::string>& groups) {
  Job job(ranks);
  for (const std::string& group : groups) {
    Ranks all(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    job.group(group, "undefined", all);
  }
  job.leave_members_out();
  return job;
}

TEST(Dumps, OfGlooWhatIsRetiredHasEnded) {
  Job job = as_gloo_is(2, {});
  job.all({0, 1}, {.group = "0", .operation = "all_reduce", .state = "scheduled", .retired = true});
  job.call(0, {.group = "0", .operation = "all_gather", .state = "scheduled"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.verdict(), Verdict::Deadlock);
  EXPECT_THAT(numbers(explained.absent), ElementsAre(1));
  EXPECT_EQ(explained.ranks[0].completed, 1U);
}

TEST(Dumps, WhoIsInAGroupFollowsFromWhoCallsIt) {
  Job job = as_gloo_is(4, {"1"});
  job.all({0, 1, 2}, {"1", "all_reduce", "completed"});
  job.all({0, 1}, {"1", "all_reduce"});
  const Explanation explained = job.explained();
  EXPECT_EQ(explained.standstills.size(), 1U);
  EXPECT_THAT(numbers(explained.standstills.at(0).missing), ElementsAre(2));
}

TEST(Dumps, CallersThatAllWaitWaitForSomebodyElse) {
  Job job = as_gloo_is(2, {"1", "2"});
  job.call(0, {"1", "all_reduce"});
  job.call(1, {"2", "all_reduce"});
  const Explanation explained = job.explained();
  EXPECT_EQ(cycle_of(explained), "0>1 1>0");
  EXPECT_THAT(text_of(explained), HasSubstr("groups 1 and 2"));
}

TEST(Dumps, AGatheringSaysHowManyAreInAGroup) {
  Job whole = as_gloo_is(4, {"1"});
  whole.all({0, 1}, {.group = "1", .operation = "all_gather", .outputs = {2, 8}});
  EXPECT_EQ(whole.explained().verdict(), Verdict::Ok);
  Job more = as_gloo_is(3, {"1"});
  more.all({0, 1}, {.group = "1", .operation = "all_gather", .outputs = {3, 8}});
  EXPECT_THAT(numbers(more.explained().standstills.at(0).missing), ElementsAre(2));
}

TEST(Dumps, RanksOfAGroupCanBeNamed) {
  Job job = as_gloo_is(4, {"1"});
  job.call(0, {"1", "all_reduce"});
  EXPECT_THAT(numbers(job.explained().standstills.at(0).missing), ElementsAre(1, 2, 3));
  const Explanation named = job.explained({{"1", {RankId(0), RankId(3)}}});
  EXPECT_THAT(numbers(named.standstills.at(0).missing), ElementsAre(3));
}

TEST(Dumps, TheJsonSaysTheSame) {
  Job job(2);
  job.call(0, {"0", "all_reduce"});
  const Json json = to_json(job.explained());
  EXPECT_EQ(json["verdict"], "deadlock");
  EXPECT_EQ(json["absent"], Json({1}));
  EXPECT_EQ(json["standstills"][0]["calls"][0]["operation"], "all_reduce");
  EXPECT_EQ(json["at_end"][1]["calls"], 0);
}

/// What join_dumps() and read_dump() say against these.
std::string refused(const std::vector<std::pair<std::string, std::string>>& files) {
  const InputError error = test::refusal([&] {
    std::vector<Dump> dumps;
    for (const auto& [name, text] : files) dumps.push_back(read_dump(text, name));
    (void)join_dumps(std::move(dumps));
  });
  test::expect_one_line(error);
  return error.what();
}

TEST(Dumps, WhoseTheyAreIsInTheirNames) {
  const std::string text = Job(12).document(3).dump();
  for (const char* name : {"rank3", "/tmp/x9/nccl_trace_rank_3", "3.json", "trace.3", "r_3.pickle",
                           "rank3_dump.pkl", "rank03"})
    EXPECT_EQ(read_dump(text, name).rank, RankId(3)) << name;
  for (const char* name : {"dump", "2_dump_3_x", "dump.json", "rank99999999999"})
    EXPECT_THAT(refused({{name, text}}), HasSubstr("whose dump is it?")) << name;
  EXPECT_EQ(read_dump(text, "dump", RankId(7)).rank, RankId(7));
}

TEST(Dumps, OfOneJobAreAllThereAndOnce) {
  const Job two(2), four(4);
  const auto text = [](const Job& job, int rank) { return job.document(rank).dump(); };
  EXPECT_THAT(refused({{"r0", text(four, 0)}, {"r2", text(four, 2)}}),
              HasSubstr("no dump of ranks 1 and 3 was given, and the job has 4 ranks"));
  EXPECT_THAT(refused({{"r0", text(two, 0)}, {"r1", text(four, 1)}}),
              HasSubstr("r1: is of a job of 4 ranks, but r0 of one of 2"));
  EXPECT_THAT(refused({{"r0", text(two, 0)}, {"x/r0", text(two, 0)}}),
              HasSubstr("x/r0: is the dump of rank 0, and so is r0"));
  EXPECT_THAT(refused({{"r0", text(two, 0)}, {"r5", text(two, 1)}}),
              HasSubstr("r5: is the dump of rank 5 by its name, but of a job of 2 ranks"));
}

TEST(Dumps, WhatIsNoDumpIsRefusedInASentence) {
  const auto changed = [](const char* pointer, const Json& value) {
    Job job(2, "nccl");
    job.call(0, {"0", "send 0->1"});
    Json document = job.document(0);
    document[Json::json_pointer(pointer)] = value;
    return refused({{"r0", document.dump()}});
  };
  EXPECT_THAT(refused({{"r0", ""}}), HasSubstr("is empty"));
  EXPECT_THAT(refused({{"r0", "hello"}}), HasSubstr("neither a pickle nor JSON"));
  EXPECT_THAT(refused({{"r0", "{}"}}), HasSubstr("is no Flight Recorder dump"));
  EXPECT_THAT(refused({{"r0", "{\"traceEvents\": []}"}}), HasSubstr("is no Flight Recorder dump"));
  EXPECT_THAT(refused({{"r0", "\x80\x02}q"}}), HasSubstr("is cut off"));
  EXPECT_THAT(changed("/version", "1.5"), HasSubstr("/version: expected a version 2"));
  EXPECT_THAT(changed("/entries/0/state", "lost"), HasSubstr("/entries/0/state: expected one of"));
  EXPECT_THAT(changed("/entries/0/process_group", {"7", "x"}),
              HasSubstr("a group whose ranks stand in pg_config"));
  EXPECT_THAT(changed("/entries/0/profiling_name", "send"),
              HasSubstr("a back end and an operation"));
  EXPECT_THAT(changed("/entries/0/profiling_name", "nccl:send 0"), HasSubstr("the two ends"));
  EXPECT_THAT(changed("/entries/0/profiling_name", "nccl:send 1->0"),
              HasSubstr("a transfer of rank 0, whose dump it is"));
  EXPECT_THAT(changed("/entries/0/profiling_name", "nccl:send 0->2"),
              HasSubstr("between two of the 2 members of its group"));
  EXPECT_THAT(changed("/pg_config/0/ranks", "[0, 0]"), HasSubstr("each once"));
  EXPECT_THAT(changed("/pg_config/0/ranks", "[0, "), HasSubstr("/pg_config/0/ranks"));
}

}  // namespace dumps_test
}  // namespace pipewright::sim
