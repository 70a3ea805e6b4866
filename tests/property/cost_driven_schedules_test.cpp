// Schedules that plan for given costs, at random sizes, costs, memory tables and limits: the order
// is whole, it ends, no rank exceeds its limit, and the least limit that a refusal names works.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::tests {
namespace cost_driven_schedules_test {

using planner::ScheduleRequest;

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int number(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(engine_);
  }

 private:
  std::mt19937 engine_;
};

StageCosts some_costs(Dice& dice, int most) {
  StageCosts costs;
  costs.f = Nanoseconds(dice.number(0, most));
  costs.i = Nanoseconds(dice.number(0, most));
  costs.w = Nanoseconds(dice.number(0, most));
  costs.b = costs.i + costs.w;
  return costs;
}

/// Now and then an I takes memory, which W gives back.
StageMemory some_memory(Dice& dice) {
  const int f = dice.number(0, 6) == 0 ? 0 : dice.number(1, 10);
  const int i = dice.number(0, 3) == 0 ? dice.number(0, 5) : -dice.number(0, f);
  return {Bytes(f), Bytes(i), Bytes(-f - i), Bytes(dice.number(0, 3) == 0 ? 7 : 0)};
}

ScheduleRequest some_request(Dice& dice, const planner::Schedule& schedule) {
  ScheduleRequest request;
  request.ranks = dice.number(1, 8);
  request.micro_batches = dice.number(1, 20);
  const bool waves = schedule.layout == planner::Layout::Waves;
  request.chunks = waves ? dice.number(2, 4) : schedule.default_chunks;
  const int stages = request.ranks * request.chunks;
  const int most = dice.number(0, 1) == 0 ? 3 : 500;
  const bool equal = dice.number(0, 1) == 0;
  request.costs = CostTable::uniform(stages, some_costs(dice, most),
                                     Nanoseconds(dice.number(0, 2) * dice.number(0, most)));
  request.costs.memory.assign(static_cast<std::size_t>(stages), some_memory(dice));
  for (int s = 0; s < stages && !equal; ++s) {
    request.costs.stages[static_cast<std::size_t>(s)] = some_costs(dice, most);
    request.costs.memory[static_cast<std::size_t>(s)] = some_memory(dice);
  }
  if (dice.number(0, 2) > 0) request.memory_limit = Bytes(dice.number(1, 10 * stages + 30));
  return request;
}

/// The number that ends a refusal: the least limit.
Bytes least_limit(const std::string& refusal) {
  return Bytes(std::stoll(refusal.substr(refusal.rfind(' ') + 1)));
}

/// What a rank's stages hold for `micro_batches` of them, and for the I that takes most.
std::int64_t promised(const Order& order, const CostTable& costs, int rank, int micro_batches) {
  std::int64_t forwards = 0, spare = 0, constant = 0;
  for (const StageId stage : order.placement.stages_of(RankId(rank))) {
    const StageMemory& memory = costs.memory[static_cast<std::size_t>(stage.value)];
    forwards += memory.f.value;
    spare = std::max(spare, memory.i.value);
    constant += memory.constant.value;
  }
  return constant + std::max(micro_batches * forwards, forwards + spare);
}

class CostDriven : public testing::TestWithParam<const char*> {};

TEST_P(CostDriven, OrdersAreWholeEndAndKeepTheirMemory) {
  const planner::Schedule& schedule = planner::find_schedule(GetParam());
  Dice dice(7);
  int raised = 0;
  for (int round = 0; round < 1500; ++round) {
    ScheduleRequest request = some_request(dice, schedule);
    SCOPED_TRACE(round);
    if (const auto refused = planner::refusal_of(schedule, request)) {
      request.memory_limit = least_limit(*refused);
      ASSERT_EQ(planner::refusal_of(schedule, request), std::nullopt) << *refused;
      request.memory_limit -= Bytes(1);
      ASSERT_NE(planner::refusal_of(schedule, request), std::nullopt) << *refused;
      request.memory_limit += Bytes(1);
      ++raised;
    }
    const Order order = planner::make_order(GetParam(), request);
    ASSERT_TRUE(problems_of(order).empty()) << problems_of(order).front();
    for (const CommPolicy& policy : {comm_policy_preset("ideal"), CommPolicy{}}) {
      ASSERT_EQ(sim::check(lower(order, policy), request.costs).verdict, Verdict::Ok);
    }
    const auto peaks = peaks_of(lower(order, CommPolicy{}), request.costs);
    const bool twice = schedule.name == "zb-2p";
    for (int r = 0; r < request.ranks; ++r) {
      const std::int64_t peak = peaks[static_cast<std::size_t>(r)].peak_bytes;
      if (request.memory_limit.value > 0) {
        ASSERT_LE(peak, request.memory_limit.value) << "rank " << r;
      } else if (schedule.layout != planner::Layout::Waves) {
        ASSERT_LE(peak, promised(order, request.costs, r, (twice ? 2 : 1) * request.ranks));
      }
    }
  }
  EXPECT_GT(raised, 20);
}

TEST_P(CostDriven, RefusesWhatItCannotPlanWith) {
  const planner::Schedule& schedule = planner::find_schedule(GetParam());
  const auto refusal = [&](auto change) {
    ScheduleRequest request{4, 8, schedule.default_chunks, {}};
    const int stages = 4 * schedule.default_chunks;
    const Nanoseconds unit(1);
    request.costs = CostTable::uniform(stages, {unit, unit, unit, Nanoseconds(2), {}});
    request.costs.memory.assign(static_cast<std::size_t>(stages),
                                {Bytes(3), Bytes(-1), Bytes(-2), Bytes(0)});
    change(request);
    return planner::refusal_of(schedule, request).value_or("");
  };
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(refusal([](ScheduleRequest&) {}), "");
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.costs.stages.pop_back(); }), "cost table"));
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.costs.memory.pop_back(); }), "memory table"));
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.costs.stages[1].w = Nanoseconds(-1); }),
                   "negative cost of stage 1"));
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.costs.memory[2].w = Bytes(-1); }),
                   "behind on stage 2: its F, I and W add up to 1"));
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.costs.memory[2].f = Bytes(-1); }), "F -1"));
  EXPECT_TRUE(says(refusal([](ScheduleRequest& r) { r.memory_limit = Bytes(2); }), "at least "));
  EXPECT_TRUE(
      says(refusal([](ScheduleRequest& r) { r.costs.stages[0].f = Nanoseconds(INT64_MAX); }),
           "31 years"));
  EXPECT_TRUE(
      says(refusal([](ScheduleRequest& r) { r.costs.memory[0].constant = Bytes(INT64_MAX); }),
           "10^18 bytes"));
  EXPECT_TRUE(
      says(refusal([](ScheduleRequest& r) { r.chunks = r.chunks == 1 ? 2 : 1; }), "use vpp"));
}

TEST_P(CostDriven, PlansNearTheLargestSums) {
  const planner::Schedule& schedule = planner::find_schedule(GetParam());
  ScheduleRequest request{4, 8, schedule.default_chunks, {}};
  const int stages = 4 * schedule.default_chunks;
  const Nanoseconds long_time(3'000'000'000'000'000);
  request.costs = CostTable::uniform(
      stages, {long_time, long_time, long_time, long_time + long_time, {}}, long_time);
  const Order large = planner::make_order(GetParam(), request);
  const Nanoseconds unit(1);
  request.costs = CostTable::uniform(stages, {unit, unit, unit, unit + unit, {}}, unit);
  EXPECT_EQ(write_order_csv(large), write_order_csv(planner::make_order(GetParam(), request)));
}

/// What the entries say of equal costs without latency: bubble and longest wait, in F's.
TEST(CostDrivenWithEqualCosts, WaitsAsLongAsTheEntriesSay) {
  for (const char* name : {"zb-1p", "zb-2p", "zbv-auto"}) {
    const int chunks = planner::find_schedule(name).default_chunks;
    for (int p = 1; p <= 10; ++p) {
      for (int m = p; m <= 3 * p; ++m) {
        const Order order = planner::make_order(name, {p, m, chunks, {}});
        const Nanoseconds unit(1);
        const CostTable costs =
            CostTable::uniform(p * chunks, {unit, unit, unit, Nanoseconds(2), {}});
        const Program program = lower(order, comm_policy_preset("ideal"));
        const Figures figures = figures_of(program, sim::simulate(program, costs).timeline, costs);
        std::int64_t wait = 0;
        for (const RankFigures& rank : figures.ranks)
          wait = std::max(wait, rank.span_ns - rank.busy_ns);
        EXPECT_EQ(figures.makespan_ns - 3 * m * chunks, p - 1) << name << " " << p << " " << m;
        EXPECT_EQ(wait, std::string(name) == "zb-1p" ? p - 1 : std::max(0, 2 * p - 1 - m))
            << name << " " << p << " " << m;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Names, CostDriven, testing::Values("zb-1p", "zb-2p", "zbv-auto", "zbvpp"),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace cost_driven_schedules_test
}  // namespace pipewright::tests
