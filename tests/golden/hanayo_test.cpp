// ELF's Hanayo: orders, times and peaks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace hanayo_test {

Figures with_unit_costs(const Order& order) {
  StageCosts each;
  each.f = each.i = each.w = Nanoseconds(1);
  each.b = Nanoseconds(2);
  const CostTable costs = CostTable::uniform(order.stages(), each);
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs);
  EXPECT_TRUE(result.finished);
  return figures_of(program, result.timeline, costs);
}

TEST(Hanayo, EqualsElfsOrdersTimesAndPeaks) {
  const auto path = golden::golden_dir() / "hanayo.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int compared = 0;
  for (const auto& entry : nlohmann::json::parse(golden::text_of(path))) {
    planner::ScheduleRequest request{entry["p"], entry["m"], 2 * entry["waves"].get<int>(), {}};
    SCOPED_TRACE("p " + entry["p"].dump() + " waves " + entry["waves"].dump());
    const Order order = planner::make_order("hanayo", request);
    EXPECT_EQ(golden::rows_of(order), entry["rows"].get<std::vector<std::string>>());
    std::vector<int> placement;
    for (int s = 0; s < order.stages(); ++s) {
      placement.push_back(order.placement.rank_of(StageId(s), MicroBatchId(0)).value);
    }
    EXPECT_EQ(placement, entry["placement"].get<std::vector<int>>());
    const Figures figures = with_unit_costs(order);
    const auto makespan = static_cast<double>(figures.makespan_ns);
    EXPECT_EQ(makespan, entry["makespan"].get<double>());
    EXPECT_EQ(makespan - entry["ideal"].get<double>(), entry["bubble"].get<double>());
    EXPECT_NEAR(figures.bubble_ratio, entry["bubble_rate"].get<double>(), 5e-5);  // 4 decimals
    std::vector<int> peaks;
    for (const RankFigures& rank : figures.ranks) peaks.push_back(rank.peak_activations);
    EXPECT_EQ(peaks, entry["peak_chunks"].get<std::vector<int>>());

    request.parameters["backward"] = "fused";
    const auto fused = with_unit_costs(planner::make_order("hanayo", request)).makespan_ns;
    EXPECT_EQ(static_cast<double>(fused), entry["fused_B_makespan"].get<double>());
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace hanayo_test
}  // namespace pipewright
