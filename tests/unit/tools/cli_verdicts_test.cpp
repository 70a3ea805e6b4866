// `check` of an order that names no policy: one verdict for each way in which stock PyTorch may run
// it; fragments; the cause in the user's own actions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/json.hpp"
#include "core/order/order.hpp"
#include "core/plan/plan.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/sample_documents.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace cli_verdicts_test {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

/// Both ranks send first: one queue of a rank or of a pair hangs, one of an edge does not.
constexpr const char* kSendSend =
    "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

TEST(Verdicts, ACsvIsJudgedAsStockPyTorchRunsIt) {
  const Folder folder;
  folder.write("a.csv", kSendSend);
  const auto text = pipewright("check a.csv", folder);
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out,
              StartsWith("torch-2.11 deadlock, torch-2.12-lazy deadlock, torch-2.12-eager "
                         "deadlock\n"));
  EXPECT_THAT(text.out, HasSubstr("policy torch-2.11 (stream, rank, early, rendezvous"));
  const json found = json::parse(pipewright("check a.csv --json", folder).out);
  EXPECT_EQ(found.at("verdict"), "deadlock");
  EXPECT_EQ(found.at("verdicts"), json::parse(R"({"torch-2.11": "deadlock",
      "torch-2.12-lazy": "deadlock", "torch-2.12-eager": "deadlock"})"));
  const auto gloo = pipewright("check a.csv --preset torch --json", folder);
  EXPECT_EQ(gloo.status, 0);
  EXPECT_EQ(json::parse(gloo.out).at("verdicts"), json::parse(R"({"torch-gloo": "ok"})"));
}

TEST(Verdicts, TheWorstCounts) {
  const Folder folder;
  // A mixed batch against single transfers: two communicators where the group is made lazily.
  folder.write("a.csv", "0F0,(0SEND_F0;0RECV_B0)BATCH_P2P,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  const auto result = pipewright("check a.csv --json", folder);
  EXPECT_EQ(result.status, 1);
  const json found = json::parse(result.out);
  EXPECT_EQ(found.at("verdicts").at("torch-2.11"), "ok");
  EXPECT_EQ(found.at("verdicts").at("torch-2.12-eager"), "ok");
  EXPECT_EQ(found.at("verdicts").at("torch-2.12-lazy"), "deadlock");
  EXPECT_EQ(found.at("verdict"), "deadlock");
  EXPECT_THAT(found.at("problems")[0].get<std::string>(), HasSubstr("on its communicator"));
}

TEST(Verdicts, AnOrderJsonAndAScheduleAreJudgedLikeACsv) {
  const Folder folder;
  const std::string sizes = " 1f1b -p 4 -m 8 ";
  ASSERT_EQ(pipewright("schedules export" + sizes + "--format json -o o.json", folder).status, 0);
  ASSERT_EQ(pipewright("schedules export" + sizes + "-o o.csv", folder).status, 0);
  const std::string all_ok = "torch-2.11 ok, torch-2.12-lazy ok, torch-2.12-eager ok\n";
  for (const std::string subject : {"o.json", "o.csv", "- <o.csv", "-s 1f1b -p 4 -m 8"}) {
    const auto result = pipewright("check " + subject, folder);
    EXPECT_EQ(result.status, 0) << subject;
    EXPECT_THAT(result.out, StartsWith(all_ok)) << subject;
  }
  // A schedule that is about a policy keeps it.
  EXPECT_THAT(pipewright("check -s paddle-vpp -p 4 -m 8 -v 2", folder).out,
              HasSubstr("policy paddle-vpp"));
}

TEST(Verdicts, AFileSaysThatItIsAFragment) {
  const Folder folder;
  const std::string rows = "0SEND_F1,0RECV_B0\n1SEND_B0,1RECV_F1\n";
  folder.write("whole.csv", rows);
  folder.write("part.csv", "# fragment\n" + rows);
  folder.write("part.json", R"({"schema": "pipewright.order/1", "fragment": true,
      "ranks": [["0SEND_F1", "0RECV_B0"], ["1SEND_B0", "1RECV_F1"]]})");
  for (const std::string part : {"part.csv", "part.json", "whole.csv --fragment"}) {
    const json found = json::parse(pipewright("check --json " + part, folder).out);
    EXPECT_EQ(found.at("verdict"), "deadlock") << part;
    EXPECT_EQ(found.at("cycle").size(), 2U) << part;
  }
  const auto whole = pipewright("check whole.csv", folder);
  EXPECT_EQ(whole.status, 1);
  EXPECT_THAT(whole.out, HasSubstr("INVALID"));
  EXPECT_THAT(whole.out, HasSubstr("--fragment"));
  folder.write("other.csv", "# a log\n" + rows);
  EXPECT_EQ(pipewright("check other.csv", folder).status, 2);
}

TEST(Verdicts, AHintAtFragmentsIsForWhatLacksSomething) {
  const Folder folder;
  folder.write("doubled.csv", "0F0,0F0,0B0\n1F0,1B0\n");
  EXPECT_THAT(pipewright("check doubled.csv", folder).out, Not(HasSubstr("--fragment")));
}

TEST(Verdicts, TheCauseIsSaidInTheUsersOwnComputations) {
  const Folder folder;
  folder.write("crossed.csv", "0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n");
  const auto text = pipewright("check crossed.csv", folder);
  EXPECT_THAT(text.out, HasSubstr("0B0 waits for rank 1's 1B0 (through 1SEND_B0)"));
  EXPECT_THAT(text.out, Not(HasSubstr("waits for rank 0's 0RECV_B0")));
  const json found = json::parse(pipewright("check crossed.csv --json", folder).out);
  ASSERT_EQ(found.at("cycle").size(), 2U);
  EXPECT_EQ(found.at("cycle")[1], json::parse(R"({"rank": 1, "instruction": "1F1",
      "waits_for": "0F1", "through": "0SEND_F1", "behind": "0B0"})"));
  EXPECT_FALSE(found.at("lane_cycle").empty());
}

TEST(Verdicts, TheMatrixHasEveryPresetAndHowItIsKnown) {
  const Folder folder;
  const std::string words = "check -s 1f1b -p 4 -m 8 --matrix";
  const json found = json::parse(pipewright(words + " --json", folder).out);
  int read = 0, run = 0;
  for (const json& each : found.at("matrix")) {
    if (each.at("preset").is_null()) continue;
    read += each.at("evidence") == "read in the source";
    run += each.at("evidence") == "run";
  }
  EXPECT_GE(read, 5);
  EXPECT_GE(run, 1);
  const std::string text = pipewright(words, folder).out;
  EXPECT_THAT(text, HasSubstr("torch-2.14-per-direction"));
  EXPECT_THAT(text, HasSubstr("read in the source"));
}

/// Its transfers are written so that a queue of an edge ends and one of a rank or pair does not.
Plan plan_for_edges() {
  Plan plan = sample_plan();
  plan.policy = {};
  plan.schedule.parameters.clear();
  plan.schedule.order = read_order_csv(kSendSend, "order");
  return plan;
}

TEST(Verdicts, APlanKeepsItsPolicyAndExportWarnsWhereStockPyTorchHangs) {
  const Folder folder;
  save_plan(plan_for_edges(), folder.path() / "plan.json");
  const auto check = pipewright("check plan.json --json", folder);
  EXPECT_EQ(check.status, 0) << check.out;
  EXPECT_EQ(json::parse(check.out).at("verdicts"), json::parse(R"({"torch-gloo": "ok"})"));
  const auto exported = pipewright("export plan.json --format pytorch-csv -o o.csv", folder);
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("does not end as stock PyTorch communicates"));
  EXPECT_THAT(exported.err, HasSubstr("deadlock under torch-2.12-lazy"));
  EXPECT_EQ(pipewright("check o.csv", folder).status, 1);
}

TEST(Verdicts, AnInterleavedPlanIsJudgedByMegatronsOwnList) {
  const Folder folder;
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": "llama3-8b",
    "cluster": {"preset": "dgx-h100", "devices": 16}, "global_batch": 64, "strategy": {
      "pp_degree": 4, "mp_degree": 1, "schedule_mode": "Interleaved1F1B", "vpp_degree": 2}})");
  ASSERT_EQ(pipewright("tune job.json -o plan.json", folder).status, 0);
  EXPECT_NE(pipewright("check plan.json --preset megatron-batched", folder).status, 0);
  const auto checked = pipewright("check plan.json --megatron overlap --json", folder);
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_EQ(json::parse(checked.out).at("verdicts"),
            json::parse(R"({"lazy": "ok", "eager": "ok"})"));
  const auto exported = pipewright("export plan.json --format megatron", folder);
  EXPECT_EQ(exported.status, 0);
  EXPECT_THAT(exported.err, Not(HasSubstr("does not end as stock Megatron-LM")));
}

TEST(Verdicts, MegatronsListIsJudgedSimulatedAndWritten) {
  const Folder folder;
  const std::string sizes = "interleaved -p 4 -m 8 -v 2 --megatron warmup-flush";
  const auto judged = pipewright("check -s " + sizes, folder);
  EXPECT_EQ(judged.status, 1);
  EXPECT_THAT(judged.out, StartsWith("lazy ok, eager deadlock\n"));
  EXPECT_EQ(pipewright("check -s " + sizes + " --channel pair", folder).status, 0);
  const auto simulated = pipewright("simulate -s " + sizes + " --emit-order --json", folder);
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  ASSERT_EQ(pipewright("schedules export " + sizes + " -o list.csv", folder).status, 0);
  EXPECT_EQ(pipewright("check list.csv --preset torch-2.12-lazy", folder).status, 0);
  const json order = json::parse(simulated.out).at("order");
  EXPECT_EQ(order.at(0).at(0), "0F0");
  const auto refused = pipewright("check -s 1f1b -p 4 -m 8 --megatron overlap", folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("does not run this order"));
  EXPECT_EQ(pipewright("check --fix -s " + sizes, folder).status, 2);
  EXPECT_EQ(pipewright("schedules export --comms " + sizes, folder).status, 2);
}

TEST(Verdicts, TuneWritesThePolicyAndWarnsOfNothingWhereThePlanEndsEverywhere) {
  const Folder folder;
  ASSERT_EQ(write_small_job(folder).status, 0);
  const json plan = json::parse(read_text((folder.path() / "plan.json").string()));
  EXPECT_EQ(plan.at("policy").at("issue"), "stream");
  const auto tuned = pipewright("tune job.json --json", folder);
  EXPECT_TRUE(json::parse(tuned.out).at("warnings").empty());
}

TEST(Verdicts, TheExecutorRefusesABatchThatIsOneOperation) {
  const Folder folder;
  folder.write("a.csv",
               "0F0,0SEND_F0,0F1,(0SEND_F1;0RECV_B0)BATCH_P2P,0B0,0RECV_B1,0B1\n"
               "1RECV_F0,1F0,1B0,(1SEND_B0;1RECV_F1)BATCH_P2P,1F1,1B1,1SEND_B1\n");
  const auto refused =
      pipewright("run a.csv --device paced --cost F=10us,B=20us --preset torch-2.11", folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("batches = joined"));
  EXPECT_EQ(pipewright("run a.csv --device paced --cost F=10us,B=20us", folder).status, 0);
}

}  // namespace cli_verdicts_test
}  // namespace pipewright::test
