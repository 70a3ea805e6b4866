// The engine on Programs small enough to work out by hand; the derivation is each test's comment.
#include "sim/engine.hpp"

#include <gtest/gtest.h>

#include "core/program/lower.hpp"

namespace pipewright::sim {
namespace engine_test {

struct Outcome {
  Program program;
  Result result;
  Figures figures;

  std::int64_t end(std::string_view text) const { return at(text, result.timeline.end); }
  std::int64_t start(std::string_view text) const { return at(text, result.timeline.start); }
  std::int64_t moving(std::string_view text) const { return at(text, result.timeline.moving); }

 private:
  std::int64_t at(std::string_view text, const std::vector<std::int64_t>& times) const {
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      if (program.text(id) == text) return times[id];
    }
    ADD_FAILURE() << "no instruction " << text;
    return -2;
  }
};

Outcome run(std::string_view csv, const CommPolicy& policy, CostTable costs,
            bool fragment = false) {
  Outcome run;
  run.program = lower(read_order_csv(csv, "order.csv"), policy, {.fragment = fragment});
  run.result = simulate(run.program, costs);
  run.figures = figures_of(run.program, run.result.timeline, costs);
  return run;
}

CostTable costs(int stages, std::int64_t f, std::int64_t i, std::int64_t w, std::int64_t comm = 0) {
  return CostTable::uniform(stages,
                            {.f = Nanoseconds(f),
                             .i = Nanoseconds(i),
                             .w = Nanoseconds(w),
                             .b = Nanoseconds(i + w),
                             .opt = {}},
                            Nanoseconds(comm));
}

constexpr std::string_view kTwoByTwo = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

TEST(Engine, OneForwardOneBackwardUnderIdeal) {
  // F 10, B 20, comm 1. Rank 0: F0 [0,10], F1 [10,20]. Rank 1: F0 [11,21], B0 [21,41], F1 [41,51],
  // B1 [51,71]. Rank 0: B0 starts at 41 + 1, ends 62; B1 at max(62, 71 + 1) = 72, ends 92.
  const Outcome r = run(kTwoByTwo, comm_policy_preset("ideal"), costs(2, 10, 12, 8, 1));
  EXPECT_EQ(r.end("0F1"), 20);
  EXPECT_EQ(r.start("1F0"), 11);
  EXPECT_EQ(r.end("1B1"), 71);
  EXPECT_EQ(r.start("0B0"), 42);
  EXPECT_EQ(r.result.timeline.makespan_ns, 92);
  EXPECT_EQ(r.end("1RECV_F1"), 21);
  EXPECT_EQ(r.start("1RECV_F1"), 0);
  EXPECT_EQ(r.moving("1RECV_F1"), 20);
  EXPECT_EQ(r.figures.ranks[0].busy_ns, 60);
  EXPECT_EQ(r.figures.ranks[0].peak_activations, 2);
  EXPECT_EQ(r.figures.ranks[1].peak_activations, 1);
  EXPECT_EQ(r.figures.ranks[1].span_ns, 60);
  EXPECT_DOUBLE_EQ(r.figures.bubble_ratio, 1 - 120.0 / 184);
  EXPECT_DOUBLE_EQ(r.figures.span_bubble_ratio, 1 - 60.0 / 92);
}

TEST(Engine, InlineRendezvousHoldsBothRanks) {
  // F 10, comm 5. Rank 0: F0 [0,10], its send waits for rank 1's receive (ready at 0): [10,15].
  // Rank 1: F0 [15,25]. Rank 0: F1 [15,25]; 1RECV_F1 stands before 1F0 ... in 1.1's order "1RECV_F0
  // 1F0 1RECV_F1 1B0": it is ready at 25, so [25,30]; 1B0 [30,50].
  const Outcome r = run(kTwoByTwo, comm_policy_preset("nccl-one-stream"), costs(2, 10, 12, 8, 5));
  EXPECT_EQ(r.end("0SEND_F0"), 15);
  EXPECT_EQ(r.start("0F1"), 15);
  EXPECT_EQ(r.end("0SEND_F1"), 30);
  EXPECT_EQ(r.start("1B0"), 30);
  EXPECT_TRUE(r.result.finished);
}

TEST(Engine, AQueueServesItsTransfersOneAfterTheOther) {
  // Stream, edge, rendezvous; F 1, comm 10. Sends issued at 1 and 2 share one queue: [1,11] and
  // [11,21].
  const Outcome r = run("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F0,1F1\n", CommPolicy{},
                        costs(2, 1, 1, 1, 10), true);
  EXPECT_EQ(r.end("1RECV_F0"), 11);
  EXPECT_EQ(r.moving("0SEND_F1"), 11);
  EXPECT_EQ(r.end("1RECV_F1"), 21);
  EXPECT_EQ(r.end("1F1"), 22);
}

TEST(Engine, EagerSendEndsAtOnceAndItsCreditComesBack) {
  // One message of credit; F 10, comm 5. 0SEND_F0 leaves at 10. Rank 1 is busy until 100 (its own
  // stage-1 backward stands first), so 1RECV_F0, inline, is ready at 100 and ends there: the
  // message came at 15. Only then 0SEND_F1, ready at 20, leaves: it ends at 100, arrives at 105.
  CommPolicy policy{.issue = Issue::Inline};
  policy.send_f = {Protocol::Kind::EagerMessages, 1};
  CostTable table = costs(2, 10, 0, 0, 5);
  table.stages[1].b = Nanoseconds(100);
  const Outcome r =
      run("0F0,0SEND_F0,0F1,0SEND_F1\n1B9,1RECV_F0,1RECV_F1,1F0,1F1\n", policy, table, true);
  EXPECT_EQ(r.end("0SEND_F0"), 10);
  EXPECT_EQ(r.end("1RECV_F0"), 100);
  EXPECT_EQ(r.start("0SEND_F1"), 20);
  EXPECT_EQ(r.end("0SEND_F1"), 100);
  EXPECT_EQ(r.end("1RECV_F1"), 105);
}

TEST(Engine, AGroupEndsWithItsLastMember) {
  // Both ranks exchange at once: grouped, no deadlock. Rank 0's F0 ends at 10, rank 1's B9 at 30:
  // both groups are whole at 30, both end at 35.
  CommPolicy policy{.issue = Issue::Grouped};
  CostTable table = costs(2, 10, 0, 0, 5);
  table.stages[1].b = Nanoseconds(30);
  const Outcome r =
      run("0F0,0SEND_F0,0RECV_B9,0B9\n1B9,1SEND_B9,1RECV_F0,1F0\n", policy, table, true);
  EXPECT_EQ(r.end("0SEND_F0"), 35);
  EXPECT_EQ(r.start("0B9"), 35);
  EXPECT_EQ(r.start("1F0"), 35);
}

CostTable with_port(Sharing sharing) {
  // Three ranks; 1000 bytes a message; everything that rank 0 sends goes over one link of 1
  // byte/ns. Latency 10.
  CostTable table = costs(4, 0, 0, 0, 0);
  table.activation_bytes.assign(3, Bytes(1000));
  table.links = {{"out of rank 0", 1e9, sharing}};
  table.route_of_edge.assign(9, RouteCosts{Nanoseconds(10), 1e9, {}});
  table.route_of_edge[1].links = {0};
  table.route_of_edge[2].links = {0};
  return table;
}
// Rank 0 sends to ranks 1 and 2 at time 0: stages 0 and 2 on rank 0, 1 on rank 1, 3 on rank 2.
constexpr std::string_view kTwoReceivers =
    "0F0,2F0,0SEND_F0,2SEND_F0\n1RECV_F0,1F0\n3RECV_F0,3F0\n";

TEST(Links, NotShared) {
  const Outcome r = run(kTwoReceivers, CommPolicy{}, with_port(Sharing::None), true);
  EXPECT_EQ(r.end("1RECV_F0"), 1010);
  EXPECT_EQ(r.end("3RECV_F0"), 1010);
}

TEST(Links, OneAfterTheOther) {
  // Ready at the same time: the lower destination first, [0,1010], then [1010,2020].
  const Outcome r = run(kTwoReceivers, CommPolicy{}, with_port(Sharing::Serial), true);
  EXPECT_EQ(r.end("1RECV_F0"), 1010);
  EXPECT_EQ(r.end("3RECV_F0"), 2020);
}

TEST(Links, EqualShares) {
  // Both begin to move at 10 and get half a byte a nanosecond: 1000 / 0.5 = 2000.
  const Outcome r = run(kTwoReceivers, CommPolicy{}, with_port(Sharing::Fair), true);
  EXPECT_EQ(r.end("1RECV_F0"), 2010);
  EXPECT_EQ(r.end("3RECV_F0"), 2010);
}

TEST(Links, ALateComerChangesTheShares) {
  // 2F0 takes 500: the first message moves alone from 10 to 510 (500 of its bytes), then shares:
  // 500 more bytes at half speed end at 1510. The second has had 500 bytes by then and goes on
  // alone: 500 more end at 2010.
  CostTable table = with_port(Sharing::Fair);
  table.stages[2].f = Nanoseconds(500);
  const Outcome r =
      run("0F0,0SEND_F0,2F0,2SEND_F0\n1RECV_F0,1F0\n3RECV_F0,3F0\n", CommPolicy{}, table, true);
  EXPECT_EQ(r.end("1RECV_F0"), 1510);
  EXPECT_EQ(r.end("3RECV_F0"), 2010);
}

TEST(Engine, SharedLinksUnderIdealNeedTheQueueEngineAndAgreeWhenAlone) {
  // A link that is never contended changes nothing.
  CostTable table = costs(2, 10, 12, 8, 1);
  const Outcome plain = run(kTwoByTwo, comm_policy_preset("ideal"), table);
  table.links = {{"out", 1e9, Sharing::Serial}};
  table.route_of_edge.assign(4, RouteCosts{Nanoseconds(1), 0, {}});
  table.route_of_edge[1].links = {0};
  const Outcome linked = run(kTwoByTwo, comm_policy_preset("ideal"), table);
  EXPECT_EQ(plain.result.timeline.end, linked.result.timeline.end);
  EXPECT_EQ(plain.result.timeline.start, linked.result.timeline.start);
  EXPECT_EQ(plain.result.timeline.moving, linked.result.timeline.moving);
}

TEST(Engine, CallsAloneMayBeComputationsToo) {
  // A host that waits, and a collective of one rank, in an order without any stage.
  const Outcome r =
      run("# group b: 0\nALL_REDUCE(a:0),HOST_SYNC,ALL_REDUCE(b:0)\nALL_REDUCE(a:0),HOST_SYNC\n",
          comm_policy_preset("torch-gloo"), CostTable::uniform(0, {}));
  EXPECT_TRUE(r.result.finished);
  EXPECT_EQ(r.result.timeline.makespan_ns, 0);
}

TEST(Engine, AStuckProgramSaysHowFarItCame) {
  const Outcome r = run("0B0,0F0\n", CommPolicy{}, costs(1, 1, 1, 1), true);
  EXPECT_FALSE(r.result.finished);
  EXPECT_EQ(r.result.progress.ended, (std::vector<std::uint8_t>{0, 0}));
}

}  // namespace engine_test
}  // namespace pipewright::sim
