// The communicators and NCCL calls of small Programs, known by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "exec/transports/nccl/policy_support.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/unit/runtime/nccl_call_cases.hpp"

namespace pipewright::exec::nccl {
namespace nccl_calls_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Over links of unknown rate.
CommunicatorPlan communicators_of(const Program& program) {
  return nccl::communicators_of(program, CostTable::uniform(program.stages, {}));
}

// --- Communicators ---

TEST(Communicators, EdgeTakesTwoRanksForEachDirectedEdge) {
  const CommunicatorPlan plan = communicators_of(program_of(kTwoRanks));
  EXPECT_THAT(names_of(plan), ElementsAre("edge 0 to 1", "edge 1 to 0"));
  EXPECT_EQ(plan.communicators[1].index_of(RankId(1)), 0);  // the source
  EXPECT_EQ(plan.communicators[1].index_of(RankId(0)), 1);
  ASSERT_EQ(plan.warm_ups.size(), 2u);
  EXPECT_EQ(plan.warm_ups[1].edges, (std::vector<std::pair<int, int>>{{0, 1}}));
}

TEST(Communicators, PairRankAndGroupedShareLinesAsThePolicySays) {
  EXPECT_THAT(names_of(communicators_of(program_of(kTwoRanks, {.channel = Channel::Pair}))),
              ElementsAre("pair 0 1"));
  EXPECT_THAT(names_of(communicators_of(program_of(kTwoRanks, {.channel = Channel::Rank}))),
              ElementsAre("all ranks"));
  EXPECT_THAT(names_of(communicators_of(program_of(kTwoRanks, {.issue = Issue::Grouped}))),
              ElementsAre("all ranks"));
  EXPECT_THAT(names_of(communicators_of(program_of(kTwoRanks, {.issue = Issue::Inline}))),
              ElementsAre("edge 0 to 1", "edge 1 to 0"));
}

TEST(Communicators, CollectivesHaveOneForEachSetOfRanks) {
  const Program program = program_of(
      "0F0,0B0,0REDUCE_GRAD,REDUCE_NORM,OPT,0UNSHARD\n1F0,1B0,1REDUCE_GRAD,REDUCE_NORM,OPT,"
      "1UNSHARD\n0F1,0B1,0REDUCE_GRAD,REDUCE_NORM,OPT,0UNSHARD\n1F1,1B1,1REDUCE_GRAD,REDUCE_NORM,"
      "OPT,1UNSHARD\n");
  const CommunicatorPlan plan = communicators_of(program);
  EXPECT_THAT(names_of(plan),
              ElementsAre("edge 0 to 1", "edge 1 to 0", "edge 2 to 3", "edge 3 to 2",
                          "replicas 0 1 2 3", "replicas 0 2", "replicas 1 3"));
  EXPECT_THAT(plan.joined_by(RankId(2)), ElementsAre(2u, 3u, 4u, 5u));
  EXPECT_EQ(plan.warm_ups.size(), 7u);
  const DeviceShare share = share_of(plan, RankId(2));
  EXPECT_EQ(share.communicators, 4);
  EXPECT_EQ(share.ctas, 4 + 4 + 16 + 16);
}

/// 20 to 25 GB/s for each: NVLink 4 and 3, a network's port, and what nobody knows.
TEST(Communicators, HaveTheCtasThatTheirLinkCanFeed) {
  EXPECT_EQ(ctas_for(450e9), 16);
  EXPECT_EQ(ctas_for(300e9), 12);
  EXPECT_EQ(ctas_for(50e9), 4);
  EXPECT_EQ(ctas_for(0), 4);
  CostTable costs = sizes(2, 4096);
  costs.every_route.bytes_per_second = 450e9;
  costs.route_of_edge.assign(4, {{}, 50e9, {}});
  costs.route_of_edge[1] = costs.every_route;  // from rank 0 to rank 1
  const StepCalls step = calls_of(program_of(kTwoRanks), costs);
  EXPECT_EQ(step.plan.communicators[0].most_ctas, 16);
  EXPECT_EQ(step.plan.communicators[1].most_ctas, 4);
  const CommunicatorPlan shared =
      nccl::communicators_of(program_of(kTwoRanks, {.channel = Channel::Pair}), costs);
  EXPECT_EQ(shared.communicators[0].most_ctas, 16) << "the faster of its two directions";
}

TEST(Communicators, FirstUseLeavesTheConnectingToTheCalls) {
  const CommunicatorPlan plan =
      communicators_of(program_of(kTwoRanks, {.connect = Connect::FirstUse}));
  EXPECT_EQ(plan.communicators.size(), 2u);
  EXPECT_TRUE(plan.warm_ups.empty());
}

/// Every rank goes through its own in one order; a communicator is made when all its members have
/// come to it.
TEST(Communicators, AreMadeAndConnectedInAnOrderThatEnds) {
  for (const planner::Schedule& schedule : planner::schedules()) {
    if (schedule.traits.searched) continue;
    const planner::ScheduleRequest request{8, 16, schedule.default_chunks, {}};
    if (refusal_of(schedule, request)) continue;
    const Program program =
        lower(planner::make_order(schedule.name, request), {}, {.optimizer = true});
    const CommunicatorPlan plan = communicators_of(program);
    std::vector<std::vector<std::uint32_t>> open;
    for (int r = 0; r < program.ranks(); ++r) {
      open.push_back(plan.joined_by(RankId(r)));
      std::reverse(open.back().begin(), open.back().end());
    }
    std::size_t made = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t c = 0; c < plan.communicators.size(); ++c) {
        const auto& members = plan.communicators[c].members;
        const bool all = std::all_of(members.begin(), members.end(), [&](RankId rank) {
          const auto& own = open[static_cast<std::size_t>(rank.value)];
          return !own.empty() && own.back() == c;
        });
        if (!all) continue;
        for (const RankId rank : members) open[static_cast<std::size_t>(rank.value)].pop_back();
        ++made;
        moved = true;
      }
    }
    EXPECT_EQ(made, plan.communicators.size()) << schedule.name;
    EXPECT_TRUE(std::is_sorted(
        plan.warm_ups.begin(), plan.warm_ups.end(),
        [](const WarmUp& a, const WarmUp& b) { return a.communicator < b.communicator; }));
  }
}

// --- What NCCL cannot give ---

TEST(Honours, TagsEagerCreditAndOpenEndsAreRefusedInWords) {
  const auto first = [](const Program& program) {
    const auto refusals = refusals_of(program);
    return refusals.empty() ? std::string() : refusals.front();
  };
  EXPECT_EQ(first(program_of(kTwoRanks)), "");
  EXPECT_THAT(first(program_of(kTwoRanks, {.channel = Channel::Tag})), HasSubstr("knows no tags"));
  const Protocol eager{Protocol::Kind::EagerMessages, 1};
  EXPECT_THAT(first(program_of(kTwoRanks, {.send_b = eager})), HasSubstr("SEND_B = eager:1"));
  EXPECT_EQ(first(program_of(kTwoRanks, {.send_b = eager, .buffers = Buffers::Registered})), "");
  EXPECT_THAT(first(program_of("0F0,0SEND_F0\n", {}, true)), HasSubstr("no rank at its other end"));
  EXPECT_THAT(first(program_of("0SEND_F0,0F0\n1RECV_F0,1F0\n", {.in_flight = 1}, true)),
              HasSubstr("stands before what it sends"));
  EXPECT_THAT(first(program_of(kTwoRanks, {.channel = Channel::Direction})),
              HasSubstr("channel = direction"));
  EXPECT_THAT(first(program_of("0F0,(0SEND_F0;0RECV_B1)BATCH_P2P\n1F1,1SEND_B1,1RECV_F0\n",
                               comm_policy_preset("torch-2.11"), true)),
              HasSubstr("batches = joined"));
  EXPECT_THROW(communicators_of(program_of(kTwoRanks, comm_policy_preset("ideal"))), InputError);
}

TEST(Honours, EveryPresetIsGivenOrRefused) {
  std::vector<std::string> given;
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const Program program = program_of(kTwoRanks, preset.policy);
    if (refusals_of(program).empty()) given.emplace_back(preset.name);
    EXPECT_EQ(policy_fields(preset.policy).size(), 9u);
    for (const PolicyField& term : policy_fields(preset.policy))
      EXPECT_NE(term.how, "") << term.field;
  }
  EXPECT_THAT(given,
              ElementsAre("nccl-one-stream", "torch-2.11", "torch-2.12-lazy", "torch-2.12-eager",
                          "torch-2.15-per-edge", "torch-gloo", "torch-pair", "torch-deferred",
                          "megatron-even-odd", "megatron-batched"));
}

// --- Calls ---

TEST(NcclCalls, UnderStreamEachEdgeHasAStreamThatWaitsForTheComputeStream) {
  const StepCalls step = calls_of(program_of(kTwoRanks), sizes(2, 4096));
  EXPECT_THAT(lines_of(step.ranks[0]),
              ElementsAre("compute 0F0 @compute", "ncclSend 0SEND_F0 @to 1 <0F0",
                          "compute 0F1 @compute", "ncclSend 0SEND_F1 @to 1 <0F1",
                          "ncclRecv 0RECV_B0 @from 1 <0F1", "compute 0B0 @compute <0RECV_B0",
                          "ncclRecv 0RECV_B1 @from 1 <0B0", "compute 0B1 @compute <0RECV_B1"));
  const Call& send = step.ranks[0].calls[1];
  EXPECT_EQ(send.count, 1024);
  EXPECT_EQ(send.peer, 1);
  EXPECT_EQ(name_of(step.plan.communicators[send.communicator]), "edge 0 to 1");
}

TEST(NcclCalls, UnderGroupedEachRunIsOneGroupOnTheComputeStream) {
  const StepCalls step = calls_of(
      program_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", comm_policy_preset("megatron-batched")),
      sizes(2, 4096));
  const auto lines = lines_of(step.ranks[1]);
  EXPECT_THAT(lines, ElementsAre("ncclGroupStart", "ncclRecv 1RECV_F0 @compute", "ncclGroupEnd",
                                 "compute 1F0 @compute", "compute 1B0 @compute", "ncclGroupStart",
                                 "ncclSend 1SEND_B0 @compute", "ncclRecv 1RECV_F1 @compute",
                                 "ncclGroupEnd", "compute 1F1 @compute", "compute 1B1 @compute",
                                 "ncclGroupStart", "ncclSend 1SEND_B1 @compute", "ncclGroupEnd"));
}

TEST(NcclCalls, ASendBeforeItsDataIsCalledBehindIt) {
  const StepCalls step =
      calls_of(program_of("0SEND_F0,0F0\n1RECV_F0,1F0\n", {}, true), sizes(2, 4));
  EXPECT_THAT(lines_of(step.ranks[0]),
              ElementsAre("compute 0F0 @compute", "ncclSend 0SEND_F0 @to 1 <0F0"));
}

TEST(NcclCalls, ReceivesAtStartComeFirstAndWaitForNothing) {
  const StepCalls step = calls_of(program_of(kTwoRanks, {.post = Post::AtStart}), sizes(2, 4));
  auto lines = lines_of(step.ranks[1]);
  lines.resize(3);
  EXPECT_THAT(lines, ElementsAre("ncclRecv 1RECV_F0 @from 0", "ncclRecv 1RECV_F1 @from 0",
                                 "compute 1F0 @compute <1RECV_F0"));
}

TEST(NcclCalls, ARingOfOnePlaceIsAWaitForItsEnd) {
  const StepCalls step = calls_of(
      program_of("0F0,0SEND_F0,0SEND_F1,0F2\n1RECV_F0,1RECV_F1,1F0\n", {.in_flight = 1}, true),
      sizes(2, 4));
  EXPECT_THAT(lines_of(step.ranks[0]),
              ElementsAre("compute 0F0 @compute", "ncclSend 0SEND_F0 @to 1 <0F0",
                          "ncclSend 0SEND_F1 @to 1", "compute 0F2 @compute <0SEND_F0"));
}

TEST(NcclCalls, ShardedReplicasScatterAndGatherTheirParts) {
  const Program program = program_of(
      "0F0,0B0,0REDUCE_GRAD,REDUCE_NORM,OPT,0UNSHARD\n0F1,0B1,0REDUCE_GRAD,REDUCE_NORM,OPT,"
      "0UNSHARD\n");
  const StepCalls step = calls_of(program, sizes(1, 0, 4 * 101));
  EXPECT_THAT(lines_of(step.ranks[1]),
              ElementsAre("compute 0F1 @compute", "compute 0B1 @compute",
                          "ncclReduceScatter 0REDUCE_GRAD @collectives <0B1",
                          "ncclAllReduce REDUCE_NORM @compute <0REDUCE_GRAD",
                          "compute OPT @compute", "ncclAllGather 0UNSHARD @collectives <OPT"));
  EXPECT_EQ(step.ranks[0].calls[2].count, 51);
  EXPECT_EQ(step.ranks[0].calls[3].count, 1);
  EXPECT_EQ(step.ranks[0].calls[3].element_bytes, 8);
}

TEST(NcclCalls, TiedWeightsAreSummedOnTheComputeStreamByAllWhoShareThem) {
  const Program program =
      program_of("0F0,0B0,REDUCE_TIED,OPT\n1F0,1B0,OPT\n2F0,2B0,REDUCE_TIED,OPT\n");
  CostTable costs = sizes(3, 4);
  costs.tied_bytes = Bytes(4000);
  const StepCalls step = calls_of(program, costs);
  const Call& sum = step.ranks[2].calls[step.ranks[2].calls.size() - 2];
  EXPECT_EQ(sum.kind, CallKind::AllReduce);
  EXPECT_EQ(sum.count, 1000);
  EXPECT_EQ(sum.stream, 0U);
  EXPECT_EQ(name_of(step.plan.communicators[sum.communicator]), "replicas 0 2");
  EXPECT_THAT(read_back(step).problems, ElementsAre());
}

/// Ranks 0 and 2, and 1 and 3, hold the same experts.
Program replicas_with_experts() {
  Order order = planner::replicate(planner::make_order("gpipe", {1, 1, 1, {}}), 2);
  pipewright::Part rows;
  rows.call = {.kind = ActionKind::AllToAll, .group = "ep", .data = "rows"};
  pipewright::Part work;
  work.call = {.kind = ActionKind::Part, .data = "mlp"};
  work.weight = 1;
  order.parts = {{StageId(0), ActionKind::F, {rows, work}}};
  order.mesh = {{"ep", 2}};
  return lower(written_out(order), {}, {.optimizer = true});
}

TEST(NcclCalls, ExpertsOfSomeReplicasAreSummedByACallOfTheirOwn) {
  const StepCalls step = calls_of(replicas_with_experts(), sizes(1, 0, 4000));
  EXPECT_THAT(names_of(step.plan), ElementsAre("replicas 0 1 2 3", "replicas 0 2", "replicas 1 3",
                                               "group ep 0 1", "group ep 2 3"));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto& calls = step.ranks[rank].calls;
    const auto all = std::find_if(calls.begin(), calls.end(), [](const Call& call) {
      return call.cell.action.kind == ActionKind::ReduceGrad;
    });
    ASSERT_LT(all + 1, calls.end());
    EXPECT_EQ(text_of(all[0]), "0REDUCE_GRAD");
    EXPECT_EQ(text_of(all[1]), "0REDUCE_GRAD of experts");
    EXPECT_EQ(step.plan.communicators[all[1].communicator].members.front(),
              RankId(static_cast<std::int64_t>(rank % 2)));
    EXPECT_EQ(all[0].count, 0) << "the costs do not tell experts apart";
    EXPECT_EQ(all[2].waits_for,
              std::vector<std::uint32_t>{static_cast<std::uint32_t>(all + 1 - calls.begin())});
  }
  EXPECT_THAT(read_back(step).problems, ElementsAre());
  EXPECT_EQ(verdict_of(read_back(step)), Verdict::Ok);
  StepCalls damaged = step;
  for (Call& call : damaged.ranks[0].calls) {
    if (call.of_experts) call.kind = CallKind::ReduceScatter;
  }
  EXPECT_THAT(read_back(damaged).problems, Contains(HasSubstr("meets another kind")));
}

TEST(NcclCalls, WhatGoesByWayOfTheHostsIsNoCall) {
  const Program program =
      program_of("0F0,0B0,0REDUCE_GRAD,REDUCE_NORM,OPT\n0F1,0B1,0REDUCE_GRAD,REDUCE_NORM,OPT\n");
  ByHosts hosts{.stages = {1}};
  EXPECT_THAT(
      lines_of(calls_of(program, sizes(1, 0, 400), hosts).ranks[1]),
      ElementsAre("compute 0F1 @compute", "compute 0B1 @compute",
                  "hosts 0REDUCE_GRAD @collectives <0B1",
                  "ncclAllReduce REDUCE_NORM @compute <0REDUCE_GRAD", "compute OPT @compute"));
  hosts.all = true;
  const StepCalls step = calls_of(program, sizes(1, 0, 400), hosts);
  EXPECT_EQ(step.ranks[0].calls[3].kind, CallKind::Hosts);
  EXPECT_THAT(read_back(step).problems, ElementsAre());
  EXPECT_EQ(verdict_of(read_back(step)), Verdict::Ok);
  EXPECT_EQ(read_back(step).program.collectives.size(), 2u);
}

/// Each group has a communicator, also where two have the same members.
TEST(NcclCalls, CollectivesOfGroupsAreCalledOnTheirOwnCommunicators) {
  const Program program = program_of(
      "0F0,ALL_REDUCE(g:1:4x8:float32),ALL_GATHER(h:2:4x8:bfloat16),ALL_TO_ALL(g:3:8:float64)\n"
      "0F1,ALL_REDUCE(g:1:4x8:float32),ALL_GATHER(h:2:4x8:bfloat16),ALL_TO_ALL(g:3:8:float64)\n");
  const StepCalls step = calls_of(program, sizes(1, 0));
  EXPECT_THAT(names_of(step.plan), ElementsAre("group g 0 1", "group h 0 1"));
  EXPECT_THAT(lines_of(step.ranks[0]),
              ElementsAre("compute 0F0 @compute", "ncclAllReduce ALL_REDUCE @group g <0F0",
                          "ncclAllGather ALL_GATHER @group h <0F0",
                          "ncclSend + ncclRecv, all ALL_TO_ALL @group g"));
  const auto& calls = step.ranks[1].calls;
  EXPECT_EQ(text_of(calls[2]), "ALL_GATHER(h:2:4x8:bfloat16)");
  EXPECT_EQ(calls[1].count, 32);
  EXPECT_EQ(calls[2].count, 16);  // what a member brings
  EXPECT_EQ(calls[2].element_bytes, 2);
  EXPECT_EQ(calls[3].count, 4);  // to each
  EXPECT_EQ(calls[3].element_bytes, 8);
  const ReadBack read = read_back(step);
  EXPECT_THAT(read.problems, ElementsAre());
  EXPECT_EQ(verdict_of(read), Verdict::Ok);
  EXPECT_EQ(read.program.code.size(), program.code.size());
}

/// Beside the sum that connects every group, where connections are made before the first step.
TEST(NcclCalls, ARingOfMembersIsConnectedOverItsEdges) {
  const std::string line = ",RING_SEND(g:1:4x8:float32)\n";
  const std::string csv = "0F0" + line + "0F1" + line + "0F2" + line;
  using Edges = std::vector<std::pair<int, int>>;
  for (const Connect connect : {Connect::Ready, Connect::FirstUse}) {
    const StepCalls step = calls_of(program_of(csv, {.connect = connect}), sizes(1, 0));
    std::vector<Edges> connected;
    for (const WarmUp& one : step.plan.warm_ups) connected.push_back(one.edges);
    const Edges ring{{0, 1}, {1, 2}, {2, 0}};
    EXPECT_EQ(connected,
              connect == Connect::Ready ? (std::vector<Edges>{{}, ring}) : std::vector<Edges>{{}});
    EXPECT_THAT(lines_of(step.ranks[2]),
                ElementsAre("compute 0F2 @compute", "ncclSend + ncclRecv RING_SEND @group g <0F2"));
    EXPECT_EQ(verdict_of(read_back(step)), Verdict::Ok);
  }
}

TEST(NcclCalls, WhatIsNoCallOfNcclIsRefused) {
  for (const auto& [call, why] : {std::pair("NEW_GROUP(g)", "makes a group inside a step"),
                                  std::pair("HOST_SYNC", "waits for the device inside a step")}) {
    const Program program = program_of(std::string("0F0,") + call + "\n0F1," + call + "\n");
    EXPECT_THAT(refusals_of(program), ElementsAre(HasSubstr(why)));
  }
}

}  // namespace nccl_calls_test
}  // namespace pipewright::exec::nccl
