#include "core/program/lower.hpp"
#include "core/base/error.hpp"

#include <gtest/gtest.h>

namespace pipewright {
namespace lower_test {

/// Each rank's list as text, so that a test reads like a schedule.
std::string listing(const Program& program) {
  std::string text;
  for (int r = 0; r < program.ranks(); ++r) {
    const auto begin = program.rank_begin[static_cast<std::size_t>(r)],
               end = program.rank_begin[static_cast<std::size_t>(r) + 1];
    for (InstructionId id = begin; id < end; ++id)
      text += (id > begin ? " " : "") + program.text(id);
    text += "\n";
  }
  return text;
}

Program lowered(std::string_view csv, const CommPolicy& policy = {},
                const LowerOptions& options = {}) {
  return lower(read_order_csv(csv, "order.csv"), policy, options);
}

InstructionId find(const Program& program, std::string_view text) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.text(id) == text) return id;
  }
  return kNoInstruction;
}

constexpr std::string_view k1F1B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

TEST(Lower, AddsSendAndReceiveAtTheSameMoment) {
  // Pass 1: 0F0 (1RECV_F0), then 1F0. Pass 2: 0F1 (1RECV_F1), then 1B0 (0RECV_B0). Pass 3: 0B0,
  // then 1F1. Pass 4: 0B1 has no gradient yet; 1B1 (0RECV_B1). Pass 5: 0B1.
  EXPECT_EQ(listing(lowered(k1F1B)),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n");
}

TEST(Lower, AnIdleSlotTakesItsRanksTurn) {
  // As above, but rank 1 idles in pass 1, so both activations are posted before its first forward.
  EXPECT_EQ(listing(lowered("0F0,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n")),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n");
}

TEST(Lower, DeferredPutsEachReceiveBeforeItsConsumer) {
  EXPECT_EQ(listing(lowered(k1F1B, {.post = Post::Deferred})),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n");
}

TEST(Lower, EvenOddOrdersEachRunByTheParityOfItsRank) {
  const CommPolicy policy{
      .issue = Issue::Inline, .post = Post::Deferred, .run_order = RunOrder::EvenOdd};
  // Rank 1's run [1SEND_B0 1RECV_F1]: odd ranks receive before they send in each direction, RECV_F
  // before SEND_B.
  EXPECT_EQ(listing(lowered(k1F1B, policy)),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1\n");
}

TEST(Lower, NoTransferBetweenTwoStagesOfOneRank) {
  // V shape on one rank: stages 0 and 1 both on rank 0.
  EXPECT_EQ(listing(lowered("0F0,1F0,1B0,0B0\n")), "0F0 1F0 1B0 0B0\n");
}

TEST(Lower, MatchesByPositionWhateverIsCarried) {
  // Ranks 0 and 1 with two edges of the pipeline on the directed edge 0 -> 1: stages 0,2 on rank 0,
  // stages 1,3 on rank 1. Rank 1 expects stage 2's activation first.
  const Program program =
      lowered("0F0,0SEND_F0,2F0,2SEND_F0\n3RECV_F0,3F0,1RECV_F0,1F0\n", {}, {.fragment = true});
  const InstructionId send = find(program, "0SEND_F0");
  EXPECT_EQ(program.text(program.code[send].link), "3RECV_F0");
  EXPECT_TRUE(program.code[send].has(Instruction::kMismatch));
}

TEST(Lower, MatchesByTensorUnderTag) {
  const Program program = lowered("0F0,0SEND_F0,2F0,2SEND_F0\n3RECV_F0,3F0,1RECV_F0,1F0\n",
                                  {.channel = Channel::Tag}, {.fragment = true});
  const InstructionId send = find(program, "0SEND_F0");
  EXPECT_EQ(program.text(program.code[send].link), "1RECV_F0");
  EXPECT_FALSE(program.code[send].has(Instruction::kMismatch));
}

TEST(Lower, AnInputThatStandsLaterIsAnExtraInput) {
  const Program program = lowered("0B0,0F0\n");
  const InstructionId backward = find(program, "0B0");
  ASSERT_EQ(program.extra_inputs_of(backward).size(), 1u);
  EXPECT_EQ(program.text(program.extra_inputs_of(backward)[0].second), "0F0");
  EXPECT_TRUE(program.extra_inputs_of(find(program, "0F0")).empty());
}

TEST(Lower, AMalformedOrderIsLoweredWithTheWaitsItAsksFor) {
  // Rank 1 wants its backward first: nothing can be taken after 0F0, so rank 0's next cell is
  // forced.
  EXPECT_EQ(listing(lowered("0F0,0B0\n1B0,1F0\n")),
            "0F0 0SEND_F0 0RECV_B0 0B0\n"
            "1RECV_F0 1B0 1SEND_B0 1F0\n");
}

TEST(Lower, OptimizerStepsStandLast) {
  EXPECT_EQ(listing(lowered("0F0,0B0\n1F0,1B0\n", {}, {.optimizer = true})),
            "0F0 0SEND_F0 0RECV_B0 0B0 OPT\n"
            "1RECV_F0 1F0 1B0 1SEND_B0 OPT\n");
}

TEST(Lower, WhereThePlanClipsANormStandsBeforeEachUpdate) {
  const Program program = lowered("0F0,0B0\n1F0,1B0\n", {}, {.clips = true, .optimizer = true});
  EXPECT_EQ(listing(program),
            "0F0 0SEND_F0 0RECV_B0 0B0 REDUCE_NORM OPT\n"
            "1RECV_F0 1F0 1B0 1SEND_B0 REDUCE_NORM OPT\n");
  ASSERT_EQ(program.collectives.size(), 1u);
  EXPECT_EQ(program.collectives[0].kind, ActionKind::ReduceNorm);
  EXPECT_EQ(program.collectives[0].members.size(), 2u);
  for (const auto& member : program.collectives[0].members)
    EXPECT_TRUE(program.code[member.instruction].has(Instruction::kOnComputeLane));
  EXPECT_THROW(lowered("0F0@0,0B0@0,OPT\n", {}, {.clips = true, .optimizer = true}), InputError);
}

TEST(Lower, KeepsPairsAndVersions) {
  const Program pair = lowered("(0F0;1B1)OVERLAP_F_B\n", {}, {.fragment = true});
  EXPECT_EQ(listing(pair), "(0F0;1B1)OVERLAP_F_B\n");
  EXPECT_EQ(listing(lowered("0F0@2,0B0@2\n")), "0F0@2 0B0@2\n");
}

TEST(Lower, ReplicasAreReducedBeforeTheUpdate) {
  // Stage 0 lives on both ranks; stage 1 on rank 1 only, so nobody has to meet for it.
  EXPECT_EQ(listing(lowered("0F0,0B0\n1F0,0F1,1F1,1B0,1B1,0B1\n", {}, {.optimizer = true})),
            "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD OPT\n"
            "1RECV_F0 1F0 0F1 1F1 1B0 1SEND_B0 1B1 0B1 0REDUCE_GRAD OPT\n");
}

TEST(Lower, NothingIsAppendedWhereTheOrderUpdatesItself) {
  EXPECT_EQ(listing(lowered("0F0@0,0B0@0,OPT,0F1@1,0B1@1,OPT\n", {}, {.optimizer = true})),
            "0F0@0 0B0@0 OPT 0F1@1 0B1@1 OPT\n");
}

TEST(Lower, TransferEndsNameNoVersion) {
  EXPECT_EQ(listing(lowered("0F0@0,OPT,0B0@0\n1F0@0,1B0@0\n")),
            "0F0@0 0SEND_F0 OPT 0RECV_B0 0B0@0\n"
            "1RECV_F0 1F0@0 1B0@0 1SEND_B0\n");
}

TEST(Lower, AnAsynchronousUpdateWaitsForNothingThatStandsLater) {
  const Program program = lowered("0F0@0,0B0@0,OPT,0F1@1,0B1@1\n");
  EXPECT_TRUE(program.asynchronous);
  EXPECT_TRUE(program.extra_inputs.empty());
  const Program synchronous = lowered("0F0,0B0,OPT,0F1,0B1\n");
  EXPECT_FALSE(synchronous.asynchronous);
  EXPECT_EQ(synchronous.extra_inputs_of(find(synchronous, "OPT")).size(), 1u);
}

TEST(Lower, ReductionsOfReplicasBelongTogetherByTheirTurn) {
  const Program program = lowered("0F0,0B0,0REDUCE_GRAD\n0F1,0B1,0REDUCE_GRAD\n");
  ASSERT_EQ(program.collectives.size(), 1u);
  const Collective& collective = program.collectives[0];
  EXPECT_FALSE(collective.sharded);
  ASSERT_EQ(collective.members.size(), 2u);
  EXPECT_EQ(collective.members[0].instruction, 2u);
  EXPECT_EQ(collective.members[1].instruction, 5u);
  EXPECT_TRUE(program.code[5].in_collective());
  EXPECT_FALSE(lowered("0F0,0B0,0REDUCE_GRAD\n").has_collectives());
}

TEST(Lower, AMemberStandsInALaneOfItsOwnOnlyUnderStream) {
  const char* csv = "0F0,0B0,0REDUCE_GRAD,OPT\n0F1,0B1,0REDUCE_GRAD,OPT\n";
  const Program stream = lowered(csv);
  EXPECT_FALSE(stream.code[2].has(Instruction::kOnComputeLane));
  const LaneTable lanes = lane_table(stream);
  EXPECT_EQ(lanes.count(), 4u);
  EXPECT_EQ(lane_name(stream, lanes, lanes.lane_of[2]), "collectives");
  // The update takes what the other lane ends.
  ASSERT_EQ(stream.extra_inputs_of(3).size(), 1u);
  EXPECT_EQ(stream.extra_inputs_of(3)[0].second, 2u);
  const Program held = lower(read_order_csv(csv, "test"), {.issue = Issue::Inline});
  EXPECT_TRUE(held.code[2].has(Instruction::kOnComputeLane));
  EXPECT_TRUE(held.extra_inputs.empty());
}

TEST(Lower, APairAloneMayNameTheVersions) {
  const Program program = lowered("0F0@0,1F0@0,(0F1@0;1B0@0)OVERLAP_F_B,1F1@0,1B1@0,0B0@0,0B1@0\n");
  EXPECT_EQ(program.text(2), "(0F1@0;1B0@0)OVERLAP_F_B");
}

TEST(Lanes, AreNumberedByTheirFirstInstruction) {
  const auto names = [](Channel channel) {
    std::string text;
    const Program program = lowered(k1F1B, {.channel = channel});
    const LaneTable table = lane_table(program);
    for (std::uint32_t lane = 0; lane < table.count(); ++lane) {
      text += std::to_string(table.rank_of_lane[lane].value) + ":" +
              lane_name(program, table, lane) + "(" +
              std::to_string(table.instructions_of(lane).size()) + ") ";
    }
    return text;
  };
  EXPECT_EQ(names(Channel::Edge),
            "0:compute(4) 0:to 1(2) 0:from 1(2) 1:compute(4) 1:from 0(2) 1:to 0(2) ");
  EXPECT_EQ(names(Channel::Pair), "0:compute(4) 0:peer 1(4) 1:compute(4) 1:peer 0(4) ");
  EXPECT_EQ(names(Channel::Rank), "0:compute(4) 0:comm(4) 1:compute(4) 1:comm(4) ");
  EXPECT_EQ(names(Channel::Tag),
            "0:compute(4) 0:0SEND_F0(1) 0:0SEND_F1(1) 0:0RECV_B0(1) 0:0RECV_B1(1) "
            "1:compute(4) 1:1RECV_F0(1) 1:1RECV_F1(1) 1:1SEND_B0(1) 1:1SEND_B1(1) ");
}

/// What lowering adds and connects in one walk (lowering_merge.cpp) is what it finds in the list
/// that names every transfer, which it takes step by step.
TEST(Lower, InOneWalkAsStepByStep) {
  // 1F1B; two stages a rank in V shape; a stage of its own rank as neighbour, with I and W; a pair.
  for (const std::string_view csv :
       {k1F1B,
        std::string_view("0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2B0,2F1,1B0,2B1,1B1\n"),
        std::string_view(
            "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,2F0,2I0,1I0,1F1,2W0,2F1,2I1,1I1,1W0,2W1,1W1\n"),
        std::string_view("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")}) {
    const Order order = read_order_csv(csv, "order.csv");
    for (const CommPolicyPreset& preset : comm_policy_presets()) {
      if (preset.policy.post == Post::Deferred || preset.policy.run_order != RunOrder::AsLowered)
        continue;
      const Program once = lower(order, preset.policy);
      const Program steps = lower(with_transfers(order), preset.policy);
      EXPECT_EQ(listing(once), listing(steps));
      ASSERT_EQ(once.code.size(), steps.code.size());
      EXPECT_EQ(once.extra_inputs, steps.extra_inputs);
      EXPECT_EQ(once.routes.size(), steps.routes.size());
      for (InstructionId id = 0; id < once.code.size(); ++id) {
        const Instruction &a = once.code[id], &b = steps.code[id];
        EXPECT_TRUE(a.flags == b.flags && a.link == b.link && a.route == b.route)
            << preset.name << " " << once.text(id) << " in " << csv;
      }
    }
  }
}

/// What they would send goes to nobody.
TEST(Lower, StagesThatNoRankComputes) {
  Order order = read_order_csv("0F0,0B0\n2F0,2B0\n", "order.csv");
  order.placement = Placement::explicit_stages({RankId(0), RankId(-1), RankId(1)}, 2);
  EXPECT_EQ(listing(lower(order, CommPolicy{})).substr(0, 7), "0F0 0B0");
}

TEST(Lanes, ReceivesPostedAtTheStartComeFirstInTheirQueue) {
  CommPolicy policy{.channel = Channel::Rank, .post = Post::AtStart};
  const Program program = lowered(k1F1B, policy);
  const LaneTable lanes = lane_table(program);
  std::string queue;
  for (const InstructionId id : lanes.instructions_of(1)) queue += program.text(id) + " ";
  EXPECT_EQ(queue, "0RECV_B0 0RECV_B1 0SEND_F0 0SEND_F1 ");
}

}  // namespace lower_test
}  // namespace pipewright
