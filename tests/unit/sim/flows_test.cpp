// What shares a network in a Program: messages with messages, with collectives, and collectives
// with each other. Worked out by hand; 1 byte a nanosecond unless a test says otherwise.
#include "sim/flows.hpp"

#include <gtest/gtest.h>

#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {
namespace flows_test {

/// Ends by text of the instruction.
struct Simulated {
  Program program;
  Result result;

  std::int64_t end(std::string_view text) const {
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      if (program.text(id) == text) return result.timeline.end[id];
    }
    ADD_FAILURE() << "no instruction " << text;
    return -2;
  }
};

Simulated run(std::string_view csv, const CostTable& costs, bool fragment = true) {
  Simulated run;
  run.program = lower(read_order_csv(csv, "order.csv"), CommPolicy{}, {.fragment = fragment});
  run.result = simulate(run.program, costs);
  EXPECT_TRUE(run.result.finished);
  return run;
}

/// Every rank has an out-port and an in-port of 1 byte/ns; latency 10; links 2r and 2r + 1.
CostTable ports(int ranks, int stages) {
  CostTable table = CostTable::uniform(stages, {});
  table.activation_bytes.assign(static_cast<std::size_t>(stages - 1), Bytes(1000));
  for (int r = 0; r < ranks; ++r) {
    table.links.push_back({"out of " + std::to_string(r), 1e9, Sharing::MaxMin});
    table.links.push_back({"into " + std::to_string(r), 1e9, Sharing::MaxMin});
  }
  for (std::uint32_t from = 0; from < static_cast<std::uint32_t>(ranks); ++from) {
    for (std::uint32_t to = 0; to < static_cast<std::uint32_t>(ranks); ++to) {
      RouteCosts route{Nanoseconds(10), 1e9, {}};
      if (from != to) route.links = {2 * from, 2 * to + 1};
      table.route_of_edge.push_back(route);
    }
  }
  return table;
}

// Stages 0 and 2 on rank 0, 1 on rank 1, 3 on rank 2: rank 0 sends to both at time 0.
constexpr std::string_view kTwoReceivers =
    "0F0,2F0,0SEND_F0,2SEND_F0\n1RECV_F0,1F0\n3RECV_F0,3F0\n";

TEST(Flows, AloneAsEverAndTogetherHalf) {
  EXPECT_EQ(run("0F0,0SEND_F0\n1RECV_F0,1F0\n", ports(2, 2)).end("1RECV_F0"), 1010);
  const Simulated both = run(kTwoReceivers, ports(3, 4));
  EXPECT_EQ(both.end("1RECV_F0"), 2010);
  EXPECT_EQ(both.end("3RECV_F0"), 2010);
}

TEST(Flows, ASlowerReceiverLeavesTheRestToTheOther) {
  // Into rank 1 goes a quarter of a byte a nanosecond, so rank 2 gets three quarters, not a half:
  // 1000 / 0.75 = 1333.3, rounded up; the slow one goes on at a quarter, to 4010.
  CostTable costs = ports(3, 4);
  costs.links[3].bytes_per_second = costs.route_of_edge[1].bytes_per_second = 0.25e9;
  const Simulated both = run(kTwoReceivers, costs);
  EXPECT_EQ(both.end("3RECV_F0"), 10 + 1334);
  EXPECT_EQ(both.end("1RECV_F0"), 4010);
}

TEST(Flows, ALateComer) {
  // As with equal shares: the first has 500 bytes when the second begins, ends at 1510; the second
  // has 500 then, and ends at 2010.
  CostTable costs = ports(3, 4);
  costs.stages[2].f = Nanoseconds(500);
  const Simulated both = run("0F0,0SEND_F0,2F0,2SEND_F0\n1RECV_F0,1F0\n3RECV_F0,3F0\n", costs);
  EXPECT_EQ(both.end("1RECV_F0"), 1510);
  EXPECT_EQ(both.end("3RECV_F0"), 2010);
}

constexpr std::string_view kRing =
    "ALL_REDUCE(w:x:1000:int8)\nALL_REDUCE(w:x:1000:int8)\nALL_REDUCE(w:x:1000:int8)\n"
    "ALL_REDUCE(w:x:1000:int8)\n";

TEST(Flows, ARingAloneTakesWhatItTookWithoutANetwork) {
  // 6 steps of 10, then 2 · 3 · 1000 / 4 = 1500 bytes out of every rank.
  EXPECT_EQ(run(kRing, ports(4, 1), false).end("ALL_REDUCE(w:x:1000:int8)"), 1560);
}

TEST(Flows, ARingMeetsItselfOnALinkThatTwoOfItsStreamsTake) {
  // Out of ranks 0 and 1 leads one link: both streams on it get half, and the ring goes as slowly.
  CostTable costs = ports(4, 1);
  for (std::uint32_t to = 0; to < 4; ++to) {
    RouteCosts& route = costs.route_of_edge[4 + to];
    if (!route.links.empty()) route.links[0] = 0;
  }
  EXPECT_EQ(run(kRing, costs, false).end("ALL_REDUCE(w:x:1000:int8)"), 60 + 3000);
}

TEST(Flows, AMessageAndACollectiveSlowEachOther) {
  // Rank 0 sends 1000 bytes to rank 1 while ranks 0 and 1 sum 2000: out of each 2000 bytes after
  // two steps of 10. Both move from 10 (20) on: the message has 10 bytes by 20, then half: 990
  // more end at 20 + 1980 = 2000. The ring has 990 by then and ends 1010 later.
  const Simulated both =
      run("0F0,0SEND_F0,ALL_REDUCE(w:x:2000:int8)\n1RECV_F0,ALL_REDUCE(w:x:2000:int8),1F0\n",
          ports(2, 2));
  EXPECT_EQ(both.end("1RECV_F0"), 2000);
  EXPECT_EQ(both.end("ALL_REDUCE(w:x:2000:int8)"), 3010);
}

TEST(Flows, AllToAllMovesAPartBetweenEveryPair) {
  // Four ranks, 1000 bytes: 250 to each of three others, all through one's port: 3 steps, 750 ns.
  constexpr std::string_view kExchange =
      "ALL_TO_ALL(w:x:1000:int8)\nALL_TO_ALL(w:x:1000:int8)\nALL_TO_ALL(w:x:1000:int8)\n"
      "ALL_TO_ALL(w:x:1000:int8)\n";
  EXPECT_EQ(run(kExchange, ports(4, 1), false).end("ALL_TO_ALL(w:x:1000:int8)"), 30 + 750);
}

TEST(Flows, AnExchangeHasOnlyThosePartsOnASlowWayThatGoThere) {
  // Ranks 0 and 1 are joined by a way of their own ten times as fast, and so are 2 and 3: 500 of
  // each rank's 750 bytes go through its port.
  CostTable costs = ports(4, 1);
  for (const std::uint32_t from : {0U, 1U, 2U, 3U}) {
    RouteCosts& route = costs.route_of_edge[from * 4 + (from ^ 1U)];
    route = {Nanoseconds(10), 1e10, {static_cast<std::uint32_t>(costs.links.size())}};
    costs.links.push_back({"way out of " + std::to_string(from), 1e10, Sharing::MaxMin});
  }
  constexpr std::string_view kExchange =
      "ALL_TO_ALL(w:x:1000:int8)\nALL_TO_ALL(w:x:1000:int8)\nALL_TO_ALL(w:x:1000:int8)\n"
      "ALL_TO_ALL(w:x:1000:int8)\n";
  EXPECT_EQ(run(kExchange, costs, false).end("ALL_TO_ALL(w:x:1000:int8)"), 30 + 500);
}

TEST(Flows, WhatTheTableGivesForTheStageComesFirst) {
  // Two members; the table gives 5000 on top of the ring's 2 · 10 + 2000.
  CostTable costs = ports(2, 1);
  costs.parameter_bytes = {Bytes(2000)};
  costs.stages[0].reduce = Nanoseconds(5000);
  const Simulated sums = run("0F0,0B0,0REDUCE_GRAD,OPT\n0F1,0B1,0REDUCE_GRAD,OPT\n", costs, false);
  EXPECT_EQ(sums.end("0REDUCE_GRAD"), 5000 + 20 + 2000);
}

TEST(Flows, PhasesOfGroupedSumsAddUp) {
  CostTable costs = ports(4, 1);
  costs.parameter_bytes = {Bytes(1000)};
  Collective sum{.kind = ActionKind::ReduceGrad,
                 .stage = StageId(0),
                 .sharded = true,
                 .groups = 2,
                 .members = {{RankId(0)}, {RankId(1)}, {RankId(2)}, {RankId(3)}}};
  const std::int64_t whole = costs.collective_time(sum, 4).value;
  const auto phases = collective_phases(costs, sum, 4, whole);
  ASSERT_EQ(phases.size(), 2U);
  // Inside: a reduce-scatter of two, 10 + 500. Across: a sum of 500 bytes by two, 20 + 500.
  EXPECT_EQ(whole, 510 + 520);
  EXPECT_EQ(phases[0].fixed_ns, 10);
  EXPECT_EQ(phases[0].bytes, 500);
  EXPECT_EQ(phases[1].fixed_ns, 20);
  EXPECT_EQ(phases[1].bytes, 500);
}

}  // namespace flows_test
}  // namespace pipewright::sim
