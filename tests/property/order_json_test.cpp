// An order keeps everything through its JSON form: cells, idle slots, pairs, versions, placement.
#include "core/order/order_json.hpp"

#include <gtest/gtest.h>

#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright {
namespace order_json_test {

Order through_json(const Order& order) {
  const Json document = parse_json(to_text(to_json(order)), "order.json");
  return read_order_json(JsonCursor(document, "order.json"));
}

void expect_same(const Order& read, const Order& written) {
  EXPECT_EQ(write_order_csv(read), write_order_csv(written));
  EXPECT_EQ(read.micro_batches, written.micro_batches);
  ASSERT_EQ(read.stages(), written.stages());
  EXPECT_EQ(read.placement.looks_at_micro_batch(), written.placement.looks_at_micro_batch());
  for (int s = 0; s < read.stages(); ++s) {
    for (int m = 0; m < read.micro_batches; ++m) {
      EXPECT_EQ(read.placement.rank_of(StageId(s), MicroBatchId(m)),
                written.placement.rank_of(StageId(s), MicroBatchId(m)));
    }
  }
}

/// A schedule may end a list with idle slots; a file does not keep those.
Order trimmed(Order order) {
  for (auto& row : order.ranks) {
    while (!row.empty() && row.back().action.kind == ActionKind::Idle) row.pop_back();
  }
  return order;
}

TEST(OrderJson, KeepsEveryScheduleOfTheRegistry) {
  int kept = 0;
  for (const auto& schedule : planner::schedules()) {
    if (schedule.traits.cost_driven) continue;
    for (const auto& [ranks, micro_batches] : {std::pair(2, 4), {4, 8}, {4, 10}, {3, 6}}) {
      const planner::ScheduleRequest request{ranks, micro_batches, schedule.default_chunks, {}};
      if (planner::refusal_of(schedule, request)) continue;
      SCOPED_TRACE(std::string(schedule.name) + " " + std::to_string(ranks));
      const Order order = trimmed(planner::make_order(schedule.name, request));
      expect_same(through_json(order), order);
      const Order listed = with_transfers(order);
      expect_same(through_json(listed), listed);
      ++kept;
    }
  }
  EXPECT_GT(kept, 40);
}

TEST(OrderJson, KeepsRandomOrders) {
  reference::RandomOptions options;
  options.broken = false;
  int replicas = 0, pairs = 0, versions = 0, idle = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    reference::Dice dice(seed);
    const std::string csv = reference::to_csv(reference::random_order(dice, options).order);
    const Order order = read_order_csv(csv, "random");
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + csv);
    expect_same(through_json(order), order);
    EXPECT_EQ(problems_of(through_json(order)), problems_of(order));
    replicas += order.placement.looks_at_micro_batch() ? 1 : 0;
    pairs += csv.find("OVERLAP") != csv.npos ? 1 : 0;
    versions += csv.find('@') != csv.npos ? 1 : 0;
    idle += csv.find(",,") != csv.npos ? 1 : 0;
  }
  // The draw has met each of them.
  EXPECT_GT(std::min({replicas, pairs, versions, idle}), 50);
}

TEST(OrderJson, WithoutAPlacementIsPlacedAsACsv) {
  const std::string csv = "0F0,0B0\n0F1,0B1\n1F0,1B0,1F1,1B1\n";
  const Order order = read_order_csv(csv, "o");
  Json document = to_json(order);
  document.erase("rank_of_stage");
  expect_same(read_order_json(JsonCursor(document, "o")), order);
}

TEST(OrderJson, KnowsARankThatComputesNothing) {
  const Json document =
      parse_json(R"({"schema": "pipewright.order/1", "ranks": [["0F0", "0B0"], [""]]})", "o");
  const Order order = read_order_json(JsonCursor(document, "o"));
  EXPECT_EQ(order.rank_count(), 2);
  ASSERT_EQ(problems_of(order).size(), 1U);
  EXPECT_EQ(problems_of(order).front().rfind("rank 1 computes nothing", 0), 0U);
}

TEST(OrderJson, MayNameStagesAndMicroBatchesThatNoActionNames) {
  const Json document = parse_json(
      R"({"schema": "pipewright.order/1", "ranks": [["0F0", "0B0"]], "rank_of_stage": [[0, 0]]})",
      "o");
  const Order order = read_order_json(JsonCursor(document, "o"));
  EXPECT_EQ(order.micro_batches, 2);
  EXPECT_EQ(problems_of(order).front().rfind("rank 0, action 1: 0F1 is missing", 0), 0U);
}

}  // namespace order_json_test
}  // namespace pipewright
