// Micro-batches dealt out: by hand where the best is known, against all dealings of small steps,
// and with a rank that is slow.
#include "planner/balance/dealing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::planner {
namespace balance_test {

struct Step {
  Program program;
  CostTable costs;
  ReplicaShape shape;
};

/// `time(replica, rank, micro_batch)`: of a forward; a backward takes twice that.
template <class Time>
Step step_of(const ReplicaShape& shape, const Time& time, const char* schedule = "1f1b") {
  const Order pipeline =
      make_order(schedule, {.ranks = shape.ranks, .micro_batches = shape.micro_batches});
  std::vector<ActionTime> rows;
  for (int r = 0; r < shape.replicas; ++r) {
    for (int q = 0; q < shape.ranks; ++q) {
      for (int m = 0; m < shape.micro_batches; ++m) {
        for (const ActionKind kind : {ActionKind::F, ActionKind::B}) {
          const std::int64_t ns = time(r, q, m) * (kind == ActionKind::F ? 1 : 2);
          const Action action{.kind = kind, .stage = StageId(q), .micro_batch = MicroBatchId(m)};
          rows.push_back({r, RankId(q), {.action = action}, Nanoseconds(ns)});
        }
      }
    }
  }
  Step step{lower(replicate(pipeline, shape.replicas), comm_policy_preset("ideal")),
            CostTable::uniform(shape.ranks, {}), shape};
  step.costs.actions = std::make_shared<ActionTimes>(std::move(rows), shape);
  return step;
}

std::int64_t slowest(const Step& step, const Loads& loads, const Dealing& dealing) {
  CostTable costs = step.costs;
  costs.actions = std::make_shared<ActionTimes>(loads.rows(dealing), step.shape);
  const auto ends = loads.ends(sim::simulate(step.program, costs).timeline);
  return *std::ranges::max_element(ends);
}

TEST(Balance, GivesEachReplicaOneLongMicroBatch) {
  // Both long ones are in replica 0.
  const Step step = step_of({2, 1, 2}, [](int r, int, int) { return r == 0 ? 30 : 10; });
  const Loads loads(step.program, step.costs, step.shape);
  const Dealt dealt = deal_out(step.program, step.costs, loads);
  EXPECT_EQ(dealt.slowest_before(), 180);
  EXPECT_EQ(dealt.slowest_after(), 120);
  EXPECT_EQ(dealt.least_ns, 120);
  EXPECT_EQ(slowest(step, loads, dealt.dealing), 120);
}

TEST(Balance, LeavesASlowRankItsTime) {
  // All micro-batches are alike, and rank 1 of replica 0 takes three times as long.
  const Step step =
      step_of({4, 3, 4}, [](int r, int q, int) { return r == 0 && q == 1 ? 30 : 10; });
  const Loads loads(step.program, step.costs, step.shape);
  EXPECT_DOUBLE_EQ(loads.slowness(0, 1), 3);
  EXPECT_DOUBLE_EQ(loads.slowness(1, 1), 1);
  EXPECT_DOUBLE_EQ(loads.time(0, 1, 1), 30);
  const Dealt dealt = deal_out(step.program, step.costs, loads);
  EXPECT_EQ(dealt.slowest_after(), dealt.slowest_before());
  EXPECT_EQ(dealt.dealing, loads.as_it_is());
}

/// A dealing has every micro-batch once, is predicted as it is simulated, and never worse.
TEST(Balance, IsNoWorseAndSimulatedAsItSays) {
  int gained = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    test::Draw draw(seed);
    const ReplicaShape shape{draw.one_of(1, 2, 5), draw.one_of(1, 2, 4), draw.one_of(2, 4, 7)};
    std::vector<int> lengths(64);
    for (int& length : lengths) length = 10 * draw.one_of(1, 2, 3, 5, 8, 13);
    const Step step = step_of(
        shape, [&](int r, int, int m) { return lengths[static_cast<std::size_t>(r * 7 + m)]; },
        draw.coin() ? "1f1b" : "gpipe");
    const Loads loads(step.program, step.costs, step.shape);
    const Dealt dealt = deal_out(step.program, step.costs, loads);
    SCOPED_TRACE(seed);
    Dealing all = dealt.dealing;
    std::ranges::sort(all);
    EXPECT_EQ(all, loads.as_it_is());
    EXPECT_EQ(slowest(step, loads, dealt.dealing), dealt.slowest_after());
    EXPECT_EQ(slowest(step, loads, loads.as_it_is()), dealt.slowest_before());
    EXPECT_LE(dealt.slowest_after(), dealt.slowest_before());
    EXPECT_GE(dealt.slowest_after(), dealt.least_ns);
    gained += dealt.slowest_after() < dealt.slowest_before();
  }
  EXPECT_GT(gained, 20);
}

/// Of few micro-batches all dealings can be tried.
TEST(Balance, IsNearTheBestOfAllDealings) {
  double sum = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    test::Draw draw(seed);
    const ReplicaShape shape{2, draw.one_of(1, 2, 3), 3};
    std::vector<int> lengths(6);
    for (int& length : lengths) length = draw.one_of(10, 20, 40, 70, 110);
    const Step step = step_of(
        shape, [&](int r, int, int m) { return lengths[static_cast<std::size_t>(r * 3 + m)]; });
    const Loads loads(step.program, step.costs, step.shape);
    std::int64_t best = slowest(step, loads, loads.as_it_is());
    Dealing dealing = loads.as_it_is();
    while (std::ranges::next_permutation(dealing).found)
      best = std::min(best, slowest(step, loads, dealing));
    const std::int64_t found = deal_out(step.program, step.costs, loads).slowest_after();
    EXPECT_LE(static_cast<double>(found), 1.1 * static_cast<double>(best)) << seed;
    sum += static_cast<double>(found) / static_cast<double>(best) / 12;
  }
  EXPECT_LT(sum, 1.03);
}

TEST(Balance, RefusesActionsThatComputeTwoMicroBatches) {
  const ReplicaShape shape{1, 4, 8};
  const Order order = make_order("dualpipev", {.ranks = 4, .micro_batches = 8, .chunks = 2});
  const Program program = lower(order, comm_policy_preset("ideal"));
  const CostTable costs = CostTable::uniform(order.stages(), {});
  try {
    const Loads loads(program, costs, shape);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("overlaps two"));
  }
}

}  // namespace balance_test
}  // namespace pipewright::planner
