// NCCL calls read back as a Program: the verdict on them, and calls that were tampered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/base/json.hpp"
#include "core/order/devices.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/unit/runtime/nccl_call_cases.hpp"

namespace pipewright::exec::nccl {
namespace nccl_calls_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

StepCalls torch_calls(const CommPolicy& policy = {}) {
  return calls_of(program_of(kTwoRanks, policy), sizes(2, 4096));
}

/// On streams of their own the groups wait for nobody; on one stream, which is all that a device
/// may have left, the two ranks wait for one another.
TEST(ReadBackCalls, GroupsCalledInAnotherOrderHangWhereTheyShareAStream) {
  const std::string csv =
      "0F0,ALL_REDUCE(g:1),ALL_GATHER(h:2)\n0F1,ALL_GATHER(h:2),ALL_REDUCE(g:1)\n";
  for (const int queues : {0, 1}) {
    const Program program = program_of(csv, {.device_queues = queues});
    const ReadBack read = read_back(calls_of(program, sizes(1, 0)));
    EXPECT_THAT(read.problems, ElementsAre());
    EXPECT_EQ(read.program.policy.device_queues, queues);
    EXPECT_EQ(verdict_of(read), queues == 0 ? Verdict::Ok : Verdict::Deadlock);
  }
}

/// A stage has many sums in a step, each of the micro-batches since the one before. Batched, the
/// interleaved order hangs, whatever replicas divide.
TEST(ReadBackCalls, DividedGradientsAndWeightsAreFoundAgain) {
  const Order order = planner::replicate(planner::make_order("interleaved", {2, 4, 2, {}}), 2);
  for (const int zero : {2, 3}) {
    for (const bool batched : {false, true}) {
      const Program program =
          lower(order, batched ? comm_policy_preset("megatron-batched") : CommPolicy{},
                {.optimizer = true, .sharded = true, .sharding = {.zero = zero}});
      const ReadBack read = read_back(calls_of(program, sizes(4, 64)));
      EXPECT_THAT(read.problems, ElementsAre());
      EXPECT_EQ(verdict_of(read), batched ? Verdict::Deadlock : Verdict::Ok);
      EXPECT_EQ(read.program.sharding.zero, zero);
      EXPECT_EQ(read.program.code.size(), program.code.size());
    }
  }
}

TEST(ReadBackCalls, AMemberThatNeverCallsIsMissed) {
  const Program program = program_of("0F0,ALL_REDUCE(g:1),ALL_REDUCE(g:2)\n0F1,ALL_REDUCE(g:1)\n");
  const StepCalls step = calls_of(program, sizes(1, 0));
  EXPECT_THAT(names_of(step.plan), ElementsAre("group g 0 1"));
  EXPECT_EQ(verdict_of(read_back(step)), Verdict::Deadlock);
}

/// Two pipeline ranks of two devices each, whose actions have parts.
TEST(ReadBackCalls, PartsOfActionsAreFoundAgain) {
  Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  const pipewright::Part computes{.call = {.kind = ActionKind::Part, .data = "mlp"}, .weight = 3};
  const pipewright::Part sums{.call = {.kind = ActionKind::AllReduce,
                                       .group = "tp",
                                       .shape = std::vector<std::int64_t>{4, 8},
                                       .dtype = "float32"}};
  for (const int stage : {0, 1}) {
    for (const ActionKind kind : {ActionKind::F, ActionKind::I})
      order.parts.push_back({StageId(stage), kind, {computes, sums, computes}});
  }
  order.mesh = {{"tp", 2}};
  EXPECT_THAT(refusals_of(lower(order, {})), ElementsAre(HasSubstr("2 devices each")));
  const Program program = lower(written_out(order), {});
  StepCalls step = calls_of(program, sizes(2, 64));
  EXPECT_THAT(names_of(step.plan), ElementsAre("edge 0 to 2", "edge 1 to 3", "edge 2 to 0",
                                               "edge 3 to 1", "group tp 0 1", "group tp 2 3"));
  const ReadBack read = read_back(step);
  EXPECT_THAT(read.problems, ElementsAre());
  EXPECT_EQ(read.order.parts.size(), 4U);
  EXPECT_EQ(verdict_of(read), Verdict::Ok);
  ASSERT_EQ(read.program.code.size(), program.code.size());
  for (InstructionId id = 0; id < program.code.size(); ++id)
    EXPECT_EQ(read.program.code[id].kind, program.code[id].kind);
  // One rank forgets a sum of one action.
  auto& calls = step.ranks[3].calls;
  const auto sum = std::ranges::find_if(calls.rbegin(), calls.rend(), [](const Call& call) {
    return call.kind == CallKind::AllReduce;
  });
  ASSERT_NE(sum, calls.rend());
  sum->kind = CallKind::Compute;
  sum->part = computes;
  EXPECT_THAT(read_back(step).problems, testing::Contains(HasSubstr("other parts than an action")));
}

TEST(ReadBackCalls, FindsThePolicyInTheCalls) {
  for (const char* preset : {"torch", "torch-pair", "nccl-one-stream", "megatron-batched"}) {
    const CommPolicy& policy = comm_policy_preset(preset);
    // Three ranks: between two, a line for each pair is a line for each rank.
    const Program program =
        program_of("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n", policy);
    const ReadBack read = read_back(calls_of(program, sizes(3, 4)));
    EXPECT_EQ(read.program.policy.issue, policy.issue) << preset;
    if (policy.issue == Issue::Stream) {
      EXPECT_EQ(read.program.policy.channel, policy.channel) << preset;
    }
    EXPECT_THAT(read.problems, ElementsAre()) << preset;
    EXPECT_EQ(verdict_of(read), sim::check(program, sizes(3, 4)).verdict) << preset;
  }
}

TEST(ReadBackCalls, TwoSendsSwappedOnOneRankAreAMismatch) {
  StepCalls step = torch_calls();
  auto& calls = step.ranks[0].calls;
  std::swap(calls[1].cell, calls[3].cell);
  EXPECT_EQ(verdict_of(read_back(step)), Verdict::Mismatch);
}

/// pytorch 172668 in small: the two lines of a pair in opposite orders.
TEST(ReadBackCalls, TwoCallsSwappedOnOneRankOfASharedLineAreADeadlock) {
  const Program program =
      program_of("0SEND_F0,0RECV_B1\n1RECV_F0,1SEND_B1\n", {.channel = Channel::Pair}, true);
  StepCalls step = calls_of(program, sizes(2, 4));
  EXPECT_EQ(verdict_of(read_back(step, true)), Verdict::Ok);
  std::swap(step.ranks[1].calls[0], step.ranks[1].calls[1]);
  const ReadBack read = read_back(step, true);
  const WaitReport report = sim::check(read.program, CostTable::uniform(2, {}));
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  EXPECT_EQ(report.cycle.size(), 2u);
}

TEST(ReadBackCalls, AMissingEventIsSaid) {
  StepCalls step = torch_calls();
  step.ranks[0].calls[1].waits_for.clear();
  const ReadBack read = read_back(step);
  ASSERT_FALSE(read.problems.empty());
  EXPECT_EQ(read.problems.front(),
            "rank 0's 0SEND_F0 may start before 0F0, which it needs, has ended");
}

TEST(ReadBackCalls, AnEventThatIsNotRecordedYetIsSaid) {
  StepCalls step = torch_calls();
  step.ranks[0].calls[1].waits_for.push_back(5);
  EXPECT_THAT(read_back(step).problems,
              testing::Contains("rank 0's 0SEND_F0 waits for an event that is not recorded yet"));
}

TEST(ReadBackCalls, AnotherCommunicatorOrPeerIsSaid) {
  StepCalls step = torch_calls();
  step.ranks[0].calls[3].communicator = 1;
  EXPECT_FALSE(read_back(step).problems.empty());
  step = torch_calls();
  step.ranks[0].calls[1].peer = 0;
  EXPECT_THAT(read_back(step).problems, testing::Contains(HasSubstr("is called with rank 0")));
}

TEST(ReadBackCalls, CollectivesOfOtherSizesDoNotMeet) {
  const Program program = program_of("0F0,0B0,0REDUCE_GRAD,OPT\n0F1,0B1,0REDUCE_GRAD,OPT\n");
  StepCalls step = calls_of(program, sizes(1, 0, 400));
  EXPECT_THAT(read_back(step).problems, ElementsAre());
  step.ranks[1].calls[2].count = 99;
  EXPECT_THAT(read_back(step).problems,
              ElementsAre(HasSubstr("meets another kind or size of call on replicas 0 1")));
}

/// Equal sizes: NCCL itself would add the wrong gradients and say nothing.
TEST(ReadBackCalls, SumsInAnotherOrderDoNotMeetAndAreADeadlock) {
  const std::string two_stages = "0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD,OPT\n";
  const auto judged = [&](const std::string& other) {
    const Program program = program_of(two_stages + other);
    const StepCalls step = calls_of(program, sizes(2, 4, 400));
    const ReadBack read = read_back(step);
    const WaitReport of_program = sim::check(program, CostTable::uniform(2, {}));
    EXPECT_EQ(verdict_of(read), of_program.verdict);
    return std::pair(of_program.verdict, read.problems);
  };
  const auto same = judged("0F1,1F1,1B1,0B1,1REDUCE_GRAD,0REDUCE_GRAD,OPT\n");
  EXPECT_EQ(same.first, Verdict::Ok);
  EXPECT_THAT(same.second, ElementsAre());
  const auto exchanged = judged("0F1,1F1,1B1,0B1,0REDUCE_GRAD,1REDUCE_GRAD,OPT\n");
  EXPECT_EQ(exchanged.first, Verdict::Deadlock);
  EXPECT_THAT(exchanged.second,
              testing::Contains(HasSubstr("meets a call that is for another sum on replicas 0 1")));
}

TEST(ReadBackCalls, OrdersReportedStuckInTheFieldAreStuckAsCallsToo) {
  const std::filesystem::path path =
      std::filesystem::path(PIPEWRIGHT_GOLDEN_DIR) / "deadlock/field_cases.json";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "golden data not found: " << path << " (set PIPEWRIGHT_GOLDEN_DIR)";
  for (const auto& entry : parse_json(read_text(path), "field_cases.json")) {
    std::string csv;
    for (const auto& [rank, actions] : entry["ranks"].items()) {
      for (const auto& action : actions) csv += action.get<std::string>() + ",";
      csv += "\n";
    }
    const Order order = read_order_csv(csv, "case");
    const CostTable costs = CostTable::uniform(order.stages(), {});
    const auto verdict = [&](const CommPolicy& policy) {
      const Program program = lower(order, policy, {.fragment = true});
      return verdict_of(read_back(calls_of(program, costs), true));
    };
    EXPECT_EQ(verdict({.issue = Issue::Inline}), Verdict::Deadlock) << entry["name"];
    EXPECT_EQ(verdict({.channel = Channel::Rank}), Verdict::Deadlock) << entry["name"];
    EXPECT_EQ(verdict({.issue = Issue::Grouped}), Verdict::Ok) << entry["name"];
    EXPECT_EQ(verdict({}), Verdict::Ok) << entry["name"];
  }
}

}  // namespace nccl_calls_test
}  // namespace pipewright::exec::nccl
