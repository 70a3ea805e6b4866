// Batches of transfers that an order names (docs/semantics.md §2.4), in the words of a CSV.
#include <gtest/gtest.h>

#include "core/order/order_json.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace batches_test {

struct Judged {
  Program program;
  WaitReport report;
};

Judged judged(std::string_view csv, const char* preset) {
  const Order order = read_order_csv(csv, "order.csv");
  Judged found{lower(order, comm_policy_preset(preset), {.fragment = order.fragment}), {}};
  found.report = sim::check(found.program, CostTable::uniform(found.program.stages, {}));
  return found;
}

Verdict verdict(std::string_view csv, const char* preset) {
  return judged(csv, preset).report.verdict;
}

/// The exchange of Schedule1F1B's steady state: both ranks send and receive.
constexpr std::string_view kMixed =
    "# fragment\n0F1,(0SEND_F1;0RECV_B0)BATCH_P2P,0B0\n1B0,(1SEND_B0;1RECV_F1)BATCH_P2P,1F1\n";

TEST(Batches, AMixedOneIsOneOperationOnNccl) {
  for (const char* preset : {"torch-2.11", "torch-2.12-lazy", "torch-2.12-eager",
                             "torch-2.14-per-direction", "torch-2.15-per-edge", "torch-gloo"}) {
    EXPECT_EQ(verdict(kMixed, preset), Verdict::Ok) << preset;
  }
  // One by one the same ends hang in one queue of a pair.
  EXPECT_EQ(verdict(kMixed, "torch-pair"), Verdict::Deadlock);
}

TEST(Batches, OnlySendsAreOneOperationUpTo211) {
  // Stages 0 and 3 on rank 0, which sends to ranks 1 and 2; rank 2 takes what rank 1 has first.
  constexpr std::string_view csv =
      "# fragment\n0F0,3B1,(0SEND_F0;3SEND_B1)BATCH_P2P\n"
      "1RECV_B1,1F9,1SEND_F9,1RECV_F0\n2RECV_B1,2SEND_B1,2RECV_F9\n";
  EXPECT_EQ(judged(csv, "torch-2.11").program.joined.size(), 2U);
  EXPECT_EQ(judged(csv, "torch-2.12-eager").program.joined.size(), 0U);
  EXPECT_EQ(verdict(csv, "torch-2.11"), Verdict::Ok);
  EXPECT_EQ(verdict(csv, "torch-2.12-eager"), Verdict::Deadlock);
  EXPECT_EQ(verdict(csv, "torch-2.12-lazy"), Verdict::Ok);
}

TEST(Batches, AMixedOneMeetsNoSingleTransferUnderLazyGroups) {
  constexpr std::string_view csv =
      "0F0,(0SEND_F0;0RECV_B0)BATCH_P2P,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(verdict(csv, "torch-2.12-lazy"), Verdict::Deadlock);
  EXPECT_EQ(verdict(csv, "torch-2.12-eager"), Verdict::Ok);
  EXPECT_EQ(verdict(csv, "torch-gloo"), Verdict::Ok);
}

TEST(Batches, WhatIsReceivedInOneIsThereWhenAllOfItHasEnded) {
  // 0B0 has its gradient, and 0SEND_F1, of the same batch, is taken behind 1F0 only.
  constexpr std::string_view csv =
      "# fragment\n0F1,(0SEND_F1;0RECV_B0)BATCH_P2P,0B0\n1SEND_B0,1F0,1RECV_F1\n";
  const Order order = read_order_csv(csv, "order.csv");
  CostTable costs = CostTable::uniform(2, {.f = Nanoseconds(10), .b = Nanoseconds(1)});
  costs.stages[1].f = Nanoseconds(30);
  const auto ends_at = [&](const char* preset) {
    const Program program = lower(order, comm_policy_preset(preset), {.fragment = true});
    const sim::Result result = sim::simulate(program, costs);
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      if (program.text(id) == "0B0") return result.timeline.end[id];
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(ends_at("torch-gloo"), 11);
  EXPECT_EQ(ends_at("torch-2.11"), 31);
}

TEST(Batches, KeepTheirCellInCsvAndJson) {
  const Order order = read_order_csv(kMixed, "order.csv");
  EXPECT_EQ(order.ranks[0].size(), 4U);
  EXPECT_EQ(write_order_csv(order), kMixed);
  const Json document = to_json(order);
  EXPECT_EQ(document.at("ranks")[0][1], "(0SEND_F1;0RECV_B0)BATCH_P2P");
  EXPECT_EQ(document.at("fragment"), true);
  const Order again = read_order_json(JsonCursor(document, "order.json"));
  EXPECT_EQ(again.ranks, order.ranks);
  EXPECT_TRUE(again.fragment);
}

}  // namespace batches_test
}  // namespace pipewright
