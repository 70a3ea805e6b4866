// Forward-only orders: the library and the slow interpreter agree on random ones, whole and broken,
// and the forwards of every schedule are a whole order that ends.
#include <gtest/gtest.h>

#include "core/order/forward_order.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace forward_order_test {

/// The reference's form of forward_order(), written anew.
reference::Order forwards_of(const reference::Order& order) {
  reference::Order forwards;
  for (const reference::Row& row : order) {
    reference::Row kept;
    for (const reference::Cell& cell : row) {
      for (reference::Action action : cell) {
        action.version = -1;
        if (action.kind == "F" || action.kind == "SEND_F" || action.kind == "RECV_F")
          kept.push_back({action});
      }
    }
    forwards.push_back(kept);
  }
  return forwards;
}

TEST(ForwardOrders, TheLibraryAgreesWithTheReference) {
  int whole = 0, refused = 0, stuck = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    reference::Dice dice(seed);
    const reference::RandomOrder random = reference::random_order(dice);
    Case c{forwards_of(random.order), reference::random_policy(dice),
           reference::random_costs(dice, random.order), false};
    if (dice.chance(10) && !random.order.front().empty()) {
      c.order.front().push_back(random.order.front().back());  // some action, maybe a backward
    }
    if (reference::parse_order(reference::to_csv(c.order)).size() != c.order.size()) continue;
    const std::string library = of_library(c);
    ASSERT_EQ(library, of_reference(c)) << "seed " << seed << "\n" << shown(c);
    const bool is_refused = library.find("verdict invalid, before") != std::string::npos;
    (is_refused ? refused : library.find(" never ends") == std::string::npos ? whole : stuck) += 1;
  }
  EXPECT_GT(whole, 300);
  EXPECT_GT(refused, 100);
  EXPECT_GT(stuck, 20);
}

TEST(ForwardOrders, ThoseOfEveryScheduleAreWholeAndEnd) {
  int tried = 0;
  for (const planner::Schedule& schedule : planner::schedules()) {
    if (schedule.traits.searched) continue;
    for (const int ranks : {1, 2, 4}) {
      for (const int chunks : {1, 2}) {
        const planner::ScheduleRequest request{
            .ranks = ranks, .micro_batches = 8, .chunks = chunks, .parameters = {}};
        if (schedule.refusal(request)) continue;
        SCOPED_TRACE(std::string(schedule.name) + " p=" + std::to_string(ranks));
        const Order order = planner::make_order(std::string(schedule.name), request);
        EXPECT_FALSE(is_forward_only(order));
        const Order forward = forward_order(order);
        EXPECT_TRUE(is_forward_only(forward));
        EXPECT_EQ(problems_of(forward), std::vector<std::string>{});
        const Program program = lower(forward, {}, {.fragment = false, .optimizer = true});
        const CostTable costs =
            CostTable::uniform(program.stages, {.f = Nanoseconds(3)}, Nanoseconds(1));
        EXPECT_EQ(sim::check(program, costs).verdict, Verdict::Ok);
        const sim::Result result = sim::simulate(program, costs);
        for (const RankFigures& rank : figures_of(program, result.timeline, costs).ranks) {
          EXPECT_EQ(rank.peak_activations, 1);
        }
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 40);
}

TEST(ForwardOrders, OneWithASingleBackwardIsATrainingThatLacksTheOthers) {
  const Order order = read_order_csv("0F0,0F1,0B1\n1F0,1F1\n", "o");
  EXPECT_FALSE(is_forward_only(order));
  ASSERT_FALSE(problems_of(order).empty());
  EXPECT_NE(problems_of(order).front().find("backward of stage 0 for micro-batch 0 is missing"),
            std::string::npos);
}

TEST(ForwardOrders, AMissingForwardIsNamed) {
  const auto problems = problems_of(read_order_csv("0F0,0F1\n1F0\n", "o"));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems.front().find("1F1 is missing"), std::string::npos) << problems.front();
}

TEST(ForwardOrders, APairLeavesItsForwardAndAVersionGoes) {
  const Order order = read_order_csv("0F0@0,(0F1@1;0B0@0)OVERLAP_F_B,OPT,0B1@1\n", "o");
  EXPECT_EQ(write_order_csv(forward_order(order)), "0F0,0F1\n");
}

}  // namespace forward_order_test
}  // namespace pipewright::tests
