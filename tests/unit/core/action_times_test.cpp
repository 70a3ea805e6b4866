// Times of single actions: the CSV, what an order has none of, and what a step takes with them.
#include "core/costs/action_times.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/costs/costs.hpp"
#include "core/costs/device_costs.hpp"
#include "core/order/devices.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace {

std::vector<ActionTime> rows_of(const std::string& lines) {
  return read_action_times_csv("replica,rank,action,ns\n" + lines, "times.csv");
}

std::string complaint(const std::string& text) {
  try {
    read_action_times_csv(text, "times.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Order one_f_one_b(int ranks, int micro_batches) {
  return planner::make_order("1f1b", {.ranks = ranks, .micro_batches = micro_batches});
}

std::int64_t step_of(const Order& order, const CostTable& costs) {
  const Program program = lower(order, comm_policy_preset("ideal"), {.optimizer = true});
  const sim::Result result = sim::simulate(program, costs);
  EXPECT_TRUE(result.finished);
  return result.timeline.makespan_ns;
}

CostTable table_of(std::vector<ActionTime> rows, const ReplicaShape& shape) {
  CostTable costs = CostTable::uniform(
      shape.ranks, {.f = Nanoseconds(10), .b = Nanoseconds(20), .opt = Nanoseconds(5)});
  costs.actions = std::make_shared<ActionTimes>(std::move(rows), shape);
  return costs;
}

TEST(ActionTimes, AreReadAndWritten) {
  const auto rows =
      rows_of("0,1,1F0,7\n\n# a slow one\n 1 , 0 , (0F1;0B0)OVERLAP_F_B , 9\r\n0,0,OPT,3\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].line, 5);
  EXPECT_EQ(write_action_times_csv(rows),
            "replica,rank,action,ns\n0,1,1F0,7\n1,0,(0F1;0B0)OVERLAP_F_B,9\n0,0,OPT,3\n");
}

TEST(ActionTimes, SayWhichLineIsWrong) {
  EXPECT_NE(complaint("").find("expected the head replica,rank,action,ns"), std::string::npos);
  EXPECT_NE(complaint("rank,action,ns\n").find("line 1"), std::string::npos);
  const std::string head = "replica,rank,action,ns\n";
  EXPECT_NE(complaint(head + "0,0,0F0\n").find("line 2: expected replica,rank,action,ns"),
            std::string::npos);
  EXPECT_NE(complaint(head + "0,0,0SEND_F0,4\n").find("found \"0SEND_F0\""), std::string::npos);
  EXPECT_NE(complaint(head + "0,0,0F0,1.5\n").find("found \"1.5\""), std::string::npos);
  EXPECT_NE(complaint(head + "0,-1,0F0,1\n").find("expected a rank"), std::string::npos);
}

TEST(ActionTimes, OfWhatTheOrderHasNotAreFaults) {
  const Order order = one_f_one_b(2, 3);
  const ReplicaShape shape{2, 2, 3};
  const auto why = [&](const std::string& lines) {
    const auto fault = fault_of(rows_of(lines), order, shape);
    return fault ? std::to_string(fault->row) + ": " + fault->why : "";
  };
  EXPECT_EQ(why("1,1,1F2,4\n0,0,OPT,1\n"), "");
  EXPECT_EQ(why("0,0,0F0,4\n0,0,0F3,4\n"), "1: rank 0 has no action 0F3");
  EXPECT_EQ(why("0,0,1F0,4\n"), "0: rank 0 has no action 1F0");
  EXPECT_EQ(why("2,0,0F0,4\n"), "0: expected a replica from 0 to 1, found 2");
  EXPECT_EQ(why("0,2,0F0,4\n"), "0: expected a rank from 0 to 1, found 2");
  EXPECT_EQ(why("0,0,0F0,4\n1,0,0F0,4\n0,0,0F0,5\n"),
            "2: a second time for 0F0 on rank 0 of replica 0");
}

/// 1F1B, p 2, m 2: with F 10 and B 20 a step of 90 and 5 for the update; the last rank's first F
/// is on every path.
TEST(ActionTimes, CountInPlaceOfTheStages) {
  const Order order = one_f_one_b(2, 2);
  EXPECT_EQ(step_of(order, table_of({}, {1, 2, 2})), 95);
  EXPECT_EQ(step_of(order, table_of(rows_of("0,1,1F0,110\n"), {1, 2, 2})), 195);
  EXPECT_EQ(step_of(order, table_of(rows_of("0,0,OPT,50\n"), {1, 2, 2})), 140);
  // 0F1 ends long before it is needed.
  EXPECT_EQ(step_of(order, table_of(rows_of("0,0,0F1,12\n"), {1, 2, 2})), 95);
}

TEST(ActionTimes, BelongToOneReplica) {
  const Order both = planner::replicate(one_f_one_b(2, 2), 2);
  const ReplicaShape shape{2, 2, 2};
  EXPECT_EQ(step_of(both, table_of(rows_of("0,1,1F0,110\n1,1,1F0,210\n"), shape)), 295);
  EXPECT_EQ(step_of(both, table_of(rows_of("0,1,1F0,210\n1,1,1F0,110\n"), shape)), 295);
  EXPECT_EQ(step_of(both, table_of(rows_of("1,0,OPT,50\n"), shape)), 140);
}

/// Devices of a rank have micro-batches with numbers of their own, and take what their rank does.
TEST(ActionTimes, HoldForEveryDeviceOfARank) {
  Order order = one_f_one_b(2, 2);
  order.mesh = {{"tp", 2}};
  const CostTable costs = table_of(rows_of("0,1,1F0,110\n0,0,OPT,50\n"), {1, 2, 2});
  const std::int64_t of_ranks = step_of(order, costs);
  EXPECT_EQ(of_ranks, 240);
  EXPECT_EQ(step_of(written_out(order), costs_of_devices(costs, 2)), of_ranks);
}

}  // namespace
}  // namespace pipewright
