// Roots of idle time on timelines made by hand, whose answers were worked out by hand.
#include "traces/analysis/root_causes.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/traced.hpp"
#include "traces/analysis/overhead_causes.hpp"

namespace pipewright::traces {
namespace root_causes_test {

/// Times: "1F0 12 22", and of a RECV "1RECV_F0 0 10 12": ready, moving, ended.
struct HandMade {
  const char* name;
  const char* csv;
  std::string times;
  std::string roots;  // "1 15-20 imbalance 0F1; …", without fill and drain
  std::int64_t latency_ns = 2;
  std::int64_t bytes = 0;  // of a message, a nanosecond each
  CommPolicy policy = {};
  LowerOptions lowering = {};
};

struct Made {
  Program program;
  Timeline timeline;
  CostTable costs;
};

/// A RECV that is not named has its message when its SEND's rank has computed before it, at once;
/// the SEND is ready then, and ends with it.
Made made(const HandMade& hand) {
  const Order order = read_order_csv(hand.csv, "order.csv");
  Made m{.program = lower(order, hand.policy, hand.lowering), .timeline = {}, .costs = {}};
  m.costs =
      CostTable::uniform(order.stages(), {.f = Nanoseconds(10)}, Nanoseconds(hand.latency_ns));
  m.costs.every_route.bytes_per_second = 1e9;
  const auto boundaries = static_cast<std::size_t>(order.stages() - 1);
  m.costs.activation_bytes.assign(boundaries, Bytes(hand.bytes));
  m.costs.gradient_bytes.assign(boundaries, Bytes(hand.bytes));
  Timeline& t = m.timeline;
  const std::size_t count = m.program.code.size();
  t.start.assign(count, kNotEnded);
  t.moving.assign(count, kNotEnded);
  t.end.assign(count, kNotEnded);
  std::istringstream lines(hand.times);
  for (std::string line; std::getline(lines, line, ',');) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<std::int64_t> at;
    for (std::int64_t n = 0; words >> n;) at.push_back(n);
    InstructionId id = 0;
    // Of what stands on several ranks under one name, the first that has no time yet.
    while (id < count && (m.program.text(id) != name || t.end[id] != kNotEnded)) ++id;
    if (id == count) throw std::runtime_error("no " + name);
    t.start[id] = at.front();
    t.moving[id] = at.size() > 2 ? at[1] : at.front();
    t.end[id] = at.back();
    t.makespan_ns = std::max(t.makespan_ns, at.back());
  }
  for (InstructionId id = 0; id < count; ++id) {
    const Instruction& in = m.program.code[id];
    if (!is_send(in.kind)) continue;
    std::int64_t computed = 0;
    for (InstructionId before = id;
         before-- > 0 && m.program.rank_of(before) == m.program.rank_of(id);)
      if (!m.program.code[before].is_communication()) {
        computed = t.end[before];
        break;
      }
    if (t.end[in.link] == kNotEnded) {
      t.start[in.link] = 0;
      t.moving[in.link] = t.end[in.link] = computed;
    }
    if (t.end[id] != kNotEnded) continue;
    t.start[id] = computed;
    t.moving[id] = t.moving[in.link];
    t.end[id] = t.end[in.link];
  }
  return m;
}

std::string text_of(const Made& m, const RootReport& report) {
  std::string text;
  for (const RootSpan& span : report.spans) {
    if (span.cause == RootCause::Fill || span.cause == RootCause::Drain) continue;
    text += (text.empty() ? "" : "; ") + std::to_string(span.rank.value) + " " +
            std::to_string(span.start_ns) + "-" + std::to_string(span.end_ns) + " " +
            std::string(to_string(span.cause));
    if (span.root != kNoInstruction) text += " " + m.program.text(span.root);
    if (span.last_member != kNoInstruction && span.cause != RootCause::Collective)
      text += " last " + std::to_string(m.program.rank_of(span.last_member).value);
  }
  return text;
}

constexpr const char* kTwoForwards = "0F0,0F1\n1F0,1F1\n";
constexpr const char* kFourForwards = "0F0,0F1,0F2,0F3\n1F0,1F1,1F2,1F3\n";
constexpr const char* kThereAndBack = "0F0,0B0\n1F0,1B0\n";
constexpr const char* kThreeRanks = "0F0,0F1,0F2\n1F0,1F1,1F2\n2F0,2F1,2F2\n";

const CommPolicy kInline{.issue = Issue::Inline};

const std::vector<HandMade>& hand_made() {
  static const std::vector<HandMade> kCases = {
      // The message of F1 took its latency; before that 0F1 ran, 10 where 1F1 takes 3.
      {"ALongerStage", kTwoForwards,
       "0F0 0 10,0F1 10 20,1RECV_F0 0 10 12,1RECV_F1 0 20 22,1F0 12 15,1F1 22 25",
       "1 15-20 imbalance 0F1; 1 20-22 message latency 1RECV_F1"},
      // From 1B0's end back: its message, 1B0, 1F0 before it, and the message that brought that.
      {"TheWayThereAndBack", kThereAndBack,
       "0F0 0 10,1RECV_F0 0 10 12,1F0 12 22,1B0 22 42,0RECV_B0 10 42 44,0B0 44 64",
       "0 10-12 message latency 1RECV_F0; 0 12-22 upstream action 1F0; 0 22-42 upstream action "
       "1B0; "
       "0 42-44 message latency 0RECV_B0"},
      // One micro-batch takes 30 where the others of the stage take 10.
      {"ASlowMicroBatch", kFourForwards,
       "0F0 0 10,0F1 10 20,0F2 20 50,0F3 50 60,1F0 10 20,1F1 20 30,1F2 50 60,1F3 60 70",
       "1 30-50 straggler 0F2"},
      // 0F2 is 18 above its stage's 12 and 22 above what it feeds.
      {"ASlowMicroBatchOfALongerStage", kFourForwards,
       "0F0 0 12,0F1 12 24,0F2 24 54,0F3 54 66,1F0 12 20,1F1 24 32,1F2 54 62,1F3 66 74",
       "1 20-24 imbalance 0F1; 1 32-36 imbalance 0F2; 1 36-54 straggler 0F2; 1 62-66 imbalance "
       "0F3"},
      // 10 longer than its like, but waited for from its middle on.
      {"WhatIsWaitedForEndsFirst", kFourForwards,
       "0F0 0 10,0F1 10 20,0F2 20 40,0F3 40 50,1F0 10 24,1F1 24 35,1F2 40 50,1F3 50 60",
       "1 35-40 straggler 0F2"},
      // Shorter than the consumer: nothing but the order makes rank 1 wait.
      {"AShorterStage", "0F0,0F1,0F2\n1F0,1F2,1F1\n",
       "0F0 0 4,0F1 4 8,0F2 8 12,1RECV_F0 0 4 5,1RECV_F2 0 12 13,1RECV_F1 0 8 9,1F0 5 10,1F2 13 18,"
       "1F1 18 23",
       "1 10-12 upstream action 0F2; 1 12-13 message latency 1RECV_F2", 1},
      // Alone it takes 2; from 10 to 15 it stood behind others.
      {"AMessageInAQueue", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 7,1RECV_F1 0 10 17,1F0 7 12,1F1 17 22",
       "1 12-15 message queue 1RECV_F1; 1 15-17 message latency 1RECV_F1"},
      {"AMessageWithBytes", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 10,1RECV_F1 0 10 15,1F0 10 11,1F1 15 16",
       "1 11-13 message bandwidth 1RECV_F1; 1 13-15 message latency 1RECV_F1", 2, 3},
      // 20 in all: 3 for the bytes, 2 latency, 15 behind others.
      {"AMessageWithBytesInAQueue", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 10,1RECV_F1 0 10 30,1F0 10 15,1F1 30 35",
       "1 15-25 message queue 1RECV_F1; 1 25-28 message bandwidth 1RECV_F1; "
       "1 28-30 message latency 1RECV_F1",
       2, 3},
      // Both ends stood ready at 10; it left at 14, when there was room for it.
      {"AMessageWithoutRoom", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 7,1RECV_F1 0 14 16,1F0 7 8,1F1 16 17",
       "1 8-10 imbalance 0F1; 1 10-14 message queue 0SEND_F1; 1 14-16 message latency 1RECV_F1"},
      // A trace whose message is faster than the table says: all of it is latency.
      {"AFasterMessageThanTheTables", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 6,1RECV_F1 0 10 11,1F0 6 8,1F1 11 13",
       "1 8-10 imbalance 0F1; 1 10-11 message latency 1RECV_F1", 2, 3},
      // Everything was there at 12; it began at 15.
      {"NothingExplainsIt", kTwoForwards,
       "0F0 0 5,0F1 5 10,1RECV_F0 0 5 7,1RECV_F1 0 10 12,1F0 7 12,1F1 15 20",
       "1 12-15 unexplained 1F1"},
      // Between rank 0's actions too.
      {"NothingExplainsTheFirstRanks", kTwoForwards, "0F0 0 5,0F1 8 13,1F0 5 10,1F1 13 18",
       "0 5-8 unexplained 0F1; 1 10-13 upstream action 0F1", 0},
      // Rank 1 begins 0F1's successor late because rank 0 began late, without a reason.
      {"NothingExplainsTheRootsStart", kTwoForwards, "0F0 0 5,0F1 11 13,1F0 5 7,1F1 13 15",
       "0 5-11 unexplained 0F1; 1 7-11 unexplained 0F1; 1 11-13 upstream action 0F1", 0},
      // The slow action is two ranks away: rank 2 waits for it, not for rank 1, which is as it was.
      {"TwoRanksAway", kThreeRanks,
       "0F0 0 10,0F1 10 40,0F2 40 50,1F0 10 20,1F1 40 50,1F2 50 60,2F0 20 30,2F1 50 60,2F2 60 70",
       "1 20-40 straggler 0F1; 2 30-40 straggler 0F1; 2 40-50 upstream action 1F1", 0},
      // The same with messages of 2, one of which took 9.
      {"TwoRanksAwayBehindASlowMessage", kThreeRanks,
       "0F0 0 10,0F1 10 20,0F2 20 30,1RECV_F0 0 10 12,1RECV_F1 0 20 29,1RECV_F2 0 30 32,"
       "1F0 12 22,1F1 29 39,1F2 39 49,2RECV_F0 0 22 24,2RECV_F1 0 39 41,2RECV_F2 0 49 51,"
       "2F0 24 34,2F1 41 51,2F2 51 61",
       "1 22-27 message queue 1RECV_F1; 1 27-29 message latency 1RECV_F1; 2 34-39 upstream action "
       "1F1; 2 39-41 message latency 2RECV_F1"},
      // Stage 1 is the long one: rank 2 waits for it, and not for rank 0.
      {"ALongMiddle", kThreeRanks,
       "0F0 0 4,0F1 4 8,0F2 8 12,1F0 4 14,1F1 14 24,1F2 24 34,2F0 14 17,2F1 24 27,2F2 34 37",
       "2 17-24 imbalance 1F1; 2 27-34 imbalance 1F2", 0},
      // I and W: rank 0 waits for 1I0, and a W between them leaves it less to wait for.
      {"WeightsFillTheGap", "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n",
       "0F0 0 10,0F1 10 20,1F0 10 20,1I0 20 30,1W0 30 40,1F1 40 50,1I1 50 60,1W1 60 70,0I0 30 40,"
       "0W0 40 50,0I1 60 70,0W1 70 80",
       "0 20-30 upstream action 1I0; 0 50-60 upstream action 1I1", 0},
      // A backward that is longer than the one it feeds.
      {"ALongerBackward", kThereAndBack, "0F0 0 10,1F0 10 20,1B0 20 50,0B0 50 70",
       "0 10-20 upstream action 1F0; 0 20-40 upstream action 1B0; 0 40-50 imbalance 1B0", 0},
      // An F feeds no B: it is not compared with it.
      {"AnFBeforeAB", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
       "0F0 0 5,0F1 5 10,1F0 5 15,1F1 15 25,1B0 25 35,1B1 35 45,0B0 35 45,0B1 45 55",
       "0 10-15 upstream action 1F0; 0 15-25 upstream action 1F1; 0 25-35 upstream action 1B0", 0},
      // Inline: a RECV on the lane is ready when the lane comes to it; the wait is the producer's.
      {"AReceiveOnTheLane", kTwoForwards,
       "0F0 0 10,0F1 12 30,0SEND_F0 10 10 12,1RECV_F0 0 10 12,0SEND_F1 30 30 32,1RECV_F1 22 30 32,"
       "1F0 12 22,1F1 32 50",
       "0 10-12 message latency 0SEND_F0; 1 22-30 straggler 0F1; 1 30-32 message latency 1RECV_F1",
       2, 0, kInline},
      // Inline: rank 0's SEND holds its lane until rank 1 is there to take it.
      {"ASendThatIsNotTaken", kTwoForwards,
       "0F0 0 10,0SEND_F0 10 10 12,1RECV_F0 0 10 12,0F1 12 22,0SEND_F1 22 42 44,1RECV_F1 42 42 44,"
       "1F0 12 42,1F1 44 54",
       "0 10-12 message latency 0SEND_F0; 1 42-44 message latency 1RECV_F1", 2, 0, kInline},
      // The same before a computation: rank 0 waits for 1F0, which is why rank 1 was not there.
      {"ASendThatHoldsTheNext", "0F0,0F1,0F2\n1F0,1F1,1F2\n",
       "0F0 0 10,0SEND_F0 10 10 12,1RECV_F0 0 10 12,0F1 12 22,0SEND_F1 22 42 44,1RECV_F1 42 42 44,"
       "1F0 12 42,1F1 44 54,0F2 44 54,0SEND_F2 54 54 56,1RECV_F2 54 54 56,1F2 56 66",
       "0 10-12 message latency 0SEND_F0; 0 22-42 straggler 1F0; 0 42-44 message latency 0SEND_F1; "
       "1 42-44 message latency 1RECV_F1; 1 54-56 message latency 1RECV_F2",
       2, 0, kInline},
      // Another rank's update inside a step.
      {"AnUpdateInBetween", "0F0,OPT,0F1\n1F0,1F1\n",
       "0F0 0 10,OPT 10 25,0F1 25 35,1F0 10 20,1F1 35 45",
       "1 20-25 optimizer OPT; 1 25-35 upstream action 0F1", 0},
      // Two replicas of one stage reduce their gradients; the second comes 20 later, its action is
      // 20 longer than the same stage's on the other.
      {"ALateMember",
       "0F0,0B0\n0F1,0B1\n",
       "0F0 0 10,0B0 10 30,0F1 0 10,0B1 10 50,0REDUCE_GRAD 30 50 55,0REDUCE_GRAD 50 50 55,OPT 55 "
       "60,OPT 55 60",
       "0 30-50 straggler 0B1 last 1; 0 50-55 collective 0REDUCE_GRAD; 1 50-55 collective "
       "0REDUCE_GRAD",
       0,
       0,
       {},
       {.optimizer = true}},
      // Both come together: the collective alone.
      {"NobodyIsLate",
       "0F0,0B0\n0F1,0B1\n",
       "0F0 0 10,0B0 10 30,0F1 0 10,0B1 10 30,0REDUCE_GRAD 30 30 37,0REDUCE_GRAD 30 30 37,OPT 37 "
       "40,OPT 37 40",
       "0 30-37 collective 0REDUCE_GRAD; 1 30-37 collective 0REDUCE_GRAD",
       0,
       0,
       {},
       {.optimizer = true}},
      // The last member was itself held up, by an action that began late for no reason.
      {"ALateMemberThatBeganLate",
       "0F0,0B0\n0F1,0B1\n",
       "0F0 0 10,0B0 10 30,0F1 0 10,0B1 18 38,0REDUCE_GRAD 30 38 40,0REDUCE_GRAD 38 38 40,OPT 40 "
       "42,OPT 40 42",
       "0 30-38 upstream action 0B1 last 1; 0 38-40 collective 0REDUCE_GRAD; 1 10-18 unexplained "
       "0B1; 1 38-40 collective 0REDUCE_GRAD",
       0,
       0,
       {},
       {.optimizer = true}},
      // A pair is compared with a pair that it feeds.
      {"PairsThatFeedPairs",
       "0F0,0F1,0F2,(0F3;0B0)OVERLAP_F_B,(0F4;0B1)OVERLAP_F_B,0B2,0B3,0B4\n"
       "1F0,1B0,(1F1;1B1)OVERLAP_F_B,(1F2;1B2)OVERLAP_F_B,(1F3;1B3)OVERLAP_F_B,1F4,1B4\n",
       "0F0 0 5,0F1 5 10,0F2 10 15,1F0 5 10,1B0 10 20,(1F1;1B1)OVERLAP_F_B 20 50,"
       "(0F3;0B0)OVERLAP_F_B 20 35,(0F4;0B1)OVERLAP_F_B 50 65,(1F2;1B2)OVERLAP_F_B 50 80,"
       "0B2 80 90,(1F3;1B3)OVERLAP_F_B 80 110,1F4 110 115,1B4 115 125,0B3 110 120,0B4 125 135",
       "0 15-20 upstream action 1B0; 0 35-50 imbalance (1F1;1B1)OVERLAP_F_B; 0 65-80 upstream "
       "action (1F2;1B2)OVERLAP_F_B; 0 90-110 upstream action (1F3;1B3)OVERLAP_F_B; 0 120-125 "
       "upstream action 1B4",
       0},
      // F1's message was made at 20 and slow, B0's at 30 and arrived before it: the bubble calls
      // the time until 30 a wait for data, but what held back was the message.
      {"TheLastToArriveCounts", "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n2F0,2B0,2F1,2B1\n",
       "0F0 0 10,0F1 10 20,1RECV_F0 0 10 12,1F0 12 17,2RECV_F0 0 17 19,2F0 19 24,2B0 24 30,"
       "1RECV_B0 0 30 32,1RECV_F1 0 20 35,(1F1;1B0)OVERLAP_F_B 35 45,2RECV_F1 0 45 47,2F1 47 52,"
       "2B1 52 58,1RECV_B1 0 58 60,1B1 60 66,0RECV_B0 0 45 47,0B0 47 53,0RECV_B1 0 66 68,0B1 68 74",
       "0 20-33 message queue 1RECV_F1; 0 33-35 message latency 1RECV_F1; 0 35-45 upstream action "
       "(1F1;1B0)OVERLAP_F_B; 0 45-47 message latency 0RECV_B0; 0 53-58 upstream action 2B1; "
       "0 58-60 message latency 1RECV_B1; 0 60-66 upstream action 1B1; 0 66-68 message latency "
       "0RECV_B1; 1 17-20 upstream action 0F1; 1 20-30 message queue 1RECV_F1; 1 30-33 message "
       "queue 1RECV_F1; 1 33-35 message "
       "latency 1RECV_F1; 1 45-47 message latency 2RECV_F1; 1 47-52 upstream action 2F1; 1 52-58 "
       "upstream action 2B1; 1 58-60 message latency 1RECV_B1; 2 30-33 message queue 1RECV_F1; "
       "2 33-35 message latency 1RECV_F1; 2 35-45 upstream action (1F1;1B0)OVERLAP_F_B; 2 45-47 "
       "message latency 2RECV_F1"},
      // Clocks that contradict the order: the message ends before it begins. What is left is said.
      {"ClocksThatContradict", kTwoForwards,
       "0F0 0 10,0F1 10 40,1RECV_F0 0 10 12,1RECV_F1 0 40 24,1F0 12 20,1F1 24 34",
       "1 20-24 straggler 0F1"},
      // Chunks: rank 0's second stage waits for rank 1's first, rank 1's for both.
      {"TwoChunks", "0F0,2F0\n1F0,3F0\n", "0F0 0 10,1F0 10 30,2F0 30 40,3F0 40 50",
       "0 10-20 upstream action 1F0; 0 20-30 imbalance 1F0; 1 30-40 upstream action 2F0", 0},
  };
  return kCases;
}

class Roots : public ::testing::TestWithParam<HandMade> {};

TEST_P(Roots, AreThoseWorkedOutByHand) {
  const Made m = made(GetParam());
  const BubbleReport bubbles = explain_bubbles(m.program, m.timeline);
  const RootReport report = root_causes(m.program, m.timeline, m.costs, bubbles);
  EXPECT_EQ(text_of(m, report), GetParam().roots);
  std::int64_t sum = 0;
  for (int c = 0; c < kRootCauses; ++c) sum += report.total.of(static_cast<RootCause>(c));
  EXPECT_EQ(sum, bubbles.total.sum());
}

INSTANTIATE_TEST_SUITE_P(HandMadeTimelines, Roots, ::testing::ValuesIn(hand_made()),
                         [](const auto& hand) { return std::string(hand.param.name); });

TEST(Roots, OfATraceTellHostAndUnshownWaits) {
  // Rank 1 stands from 12 to 24 though F1's data came at 12: the host started transfers from 14 to
  // 16, and from 18 to 21 its slice shows it waiting for an input.
  const HandMade hand{"", kTwoForwards,
                      "0F0 0 5,0F1 5 10,1RECV_F0 0 5 7,1RECV_F1 0 10 12,1F0 7 12,1F1 24 30", ""};
  const Made m = made(hand);
  TraceTimeline trace;
  trace.ranks.resize(2);
  trace.ranks[1].posts = {{14, 16}};
  trace.ranks[1].waits = {{18, 21}};
  BubbleReport bubbles = explain_bubbles(m.program, m.timeline);
  explain_overhead(trace, bubbles);
  EXPECT_EQ(text_of(m, root_causes(m.program, m.timeline, {}, bubbles, &trace)),
            "1 12-14 unexplained 1F1; 1 14-16 host 1F1; 1 16-18 unexplained 1F1; "
            "1 18-21 upstream action 1F1; 1 21-24 unexplained 1F1");
}

TEST(Roots, OfATraceTakeTheFastestMessageForTheLatency) {
  // The route's messages took 3 and 7.
  const HandMade hand{"", kTwoForwards,
                      "0F0 0 5,0F1 5 10,1RECV_F0 0 5 8,1RECV_F1 0 10 17,1F0 8 10,1F1 17 20", ""};
  const Made m = made(hand);
  const BubbleReport bubbles = explain_bubbles(m.program, m.timeline);
  EXPECT_EQ(text_of(m, root_causes(m.program, m.timeline, {}, bubbles)),
            "1 10-14 message queue 1RECV_F1; 1 14-17 message latency 1RECV_F1");
}

TEST(Roots, OfAStuckStepAreStuck) {
  const auto t = test::traced_csv("0F0,0RECV_B0,0B0\n1F1,1F2\n", comm_policy_preset("torch"),
                                  "F=1000,B=2000", true);
  ASSERT_FALSE(t.finished);
  const RootReport report =
      root_causes(t.program, t.timeline, t.costs, explain_bubbles(t.program, t.timeline));
  EXPECT_EQ(report.total.of(RootCause::Stuck), 1000);
}

TEST(Roots, AreSummedByWhatTheyAre) {
  // TwoRanksAway: 30 of idle time come from 0F1, 10 from 1F1.
  const HandMade* hand = nullptr;
  for (const HandMade& one : hand_made())
    if (std::string(one.name) == "TwoRanksAway") hand = &one;
  ASSERT_NE(hand, nullptr);
  const Made m = made(*hand);
  const RootReport report =
      root_causes(m.program, m.timeline, m.costs, explain_bubbles(m.program, m.timeline));
  const std::vector<RootOf> roots = by_root(m.program, report);
  ASSERT_EQ(roots.size(), 2U);
  EXPECT_EQ(m.program.text(roots[0].root), "0F1");
  EXPECT_EQ(roots[0].idle_ns, 30);
  EXPECT_EQ(roots[0].by_cause.of(RootCause::Straggler), 30);
  EXPECT_EQ(m.program.text(roots[1].root), "1F1");
  EXPECT_EQ(roots[1].idle_ns, 10);
}

TEST(Roots, SayForWhomACollectiveWaited) {
  const HandMade* hand = nullptr;
  for (const HandMade& one : hand_made())
    if (std::string(one.name) == "ALateMember") hand = &one;
  ASSERT_NE(hand, nullptr);
  const Made m = made(*hand);
  const auto late = late_members(m.program, root_causes(m.program, m.timeline, m.costs,
                                                        explain_bubbles(m.program, m.timeline)));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].rank, RankId(1));
  EXPECT_EQ(late[0].idle_ns, 20);
}

}  // namespace root_causes_test
}  // namespace pipewright::traces
