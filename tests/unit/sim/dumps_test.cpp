// Flight Recorder dumps, made by hand in PyTorch's documented form: what hangs, for whom, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "sim/dumps/dump_files.hpp"
#include "sim/dumps/explanation_text.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::sim {
namespace dumps_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ranks = std::vector<int>;
using Sizes = std::vector<std::int64_t>;

/// A call of one rank.
struct Made {
  std::string group, operation;
  std::string state = "started";
  Sizes sizes = {8};
  std::string type = "Float";
  std::string file = {};  // of whoever called
  int line = 0;
  Sizes outputs = {};  // where they are others
  bool retired = false;
};

/// The dumps of a job, as PyTorch counts and writes them.
class Job {
 public:
  explicit Job(int ranks, std::string backend = "gloo")
      : backend_(std::move(backend)), own_(ranks) {
    Ranks all(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    group("0", "default_pg", all);
  }

  void group(const std::string& name, const std::string& description, const Ranks& ranks) {
    for (const int rank : ranks) {
      own_[static_cast<std::size_t>(rank)].groups[name] = {
          {"name", name}, {"desc", description}, {"ranks", Json(ranks).dump()}};
    }
  }

  void call(int rank, const Made& made) {
    Own& own = own_[static_cast<std::size_t>(rank)];
    const bool transfer = made.operation.find(' ') != made.operation.npos;
    auto& number = (transfer ? own.transfers : own.collectives)[made.group];
    entry(rank, made, transfer, ++number);
  }
  /// Of each rank the same.
  void all(const Ranks& ranks, const Made& made) {
    for (const int rank : ranks) call(rank, made);
  }

  /// Transfers that are one operation, with the closing entry, whose state counts.
  void batch(int rank, const std::vector<Made>& made) {
    const std::int64_t number =
        ++own_[static_cast<std::size_t>(rank)].transfers[made.front().group];
    for (Made one : made) {
      one.state = "scheduled";
      entry(rank, one, true, number);
    }
    Made closing = made.back();
    closing.operation = "coalesced";
    entry(rank, closing, true, number);
  }

  /// The rank's dump has lost its first calls.
  void forget(int rank, std::size_t calls) {
    Json& entries = own_[static_cast<std::size_t>(rank)].entries;
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(calls));
  }

  Json document(int rank) const {
    const Own& own = own_[static_cast<std::size_t>(rank)];
    Json groups = Json::object();
    for (const auto& [name, group] : own.groups) {
      if (says_members_) groups[name] = group;
    }
    if (!says_members_) groups[""] = {{"name", ""}, {"desc", ""}, {"ranks", "[]"}};
    return {{"version", "2.10"},
            {"pg_config", groups},
            {"pg_status", Json::object()},
            {"entries", own.entries}};
  }
  Dump dump(int rank) const {
    return read_dump(document(rank).dump(), "nccl_trace_rank_" + std::to_string(rank));
  }
  Explanation explained(const NamedRanks& named = {}) const {
    std::vector<Dump> dumps;
    for (int r = 0; r < static_cast<int>(own_.size()); ++r) dumps.push_back(dump(r));
    return explain(join_dumps(std::move(dumps), named));
  }

  void leave_members_out() { says_members_ = false; }

 private:
  struct Own {
    std::map<std::string, Json> groups;
    std::map<std::string, std::int64_t> collectives, transfers;
    Json entries = Json::array();
    std::int64_t records = 0;
  };

  void entry(int rank, const Made& made, bool transfer, std::int64_t number) {
    Own& own = own_[static_cast<std::size_t>(rank)];
    const auto& outputs = made.outputs.empty() ? made.sizes : made.outputs;
    Json entry = {{"record_id", own.records++},
                  {"pg_id", 0},
                  {"process_group", {made.group, own.groups.at(made.group)["desc"]}},
                  {"collective_seq_id", transfer ? 0 : number},
                  {"p2p_seq_id", transfer ? number : 0},
                  {"op_id", own.records},
                  {"profiling_name", backend_ + ":" + made.operation},
                  {"time_created_ns", 1},
                  {"input_sizes", {made.sizes}},
                  {"input_dtypes", {made.type}},
                  {"output_sizes", {outputs}},
                  {"output_dtypes", {made.type}},
                  {"state", made.state},
                  {"retired", made.retired},
                  {"timeout_ms", 1000},
                  {"is_p2p", transfer}};
    if (!made.file.empty()) {
      entry["frames"] = {
          {{"name", "all_reduce"}, {"filename", "/lib/torch/distributed.py"}, {"line", 1}},
          {{"name", "main"}, {"filename", made.file}, {"line", made.line}}};
    }
    own.entries.push_back(entry);
  }

  std::string backend_;
  std::vector<Own> own_;
  bool says_members_ = true;
};

Ranks numbers(const std::vector<RankId>& ranks) {
  Ranks numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value);
  return numbers;
}

std::string text_of(const Explanation& explained) {
  std::string text;
  for (const std::string& line : reasons_of(explained)) text += line + "\n";
  return text;
}

/// "0>1 1>0": who waits for whom.
std::string cycle_of(const Explanation& explained) {
  std::string text;
  for (const CallWait& wait : explained.cycle) {
    text += (text.empty() ? "" : " ") + std::to_string(wait.waits.rank.value) + ">" +
            std::to_string(wait.waits_for.value);
  }
  return text;
}

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
