// The schedules of repeated building blocks against the code of the papers they come from: orders
// action by action, and makespan, span and peaks of every recorded run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace building_blocks_test {

using golden::golden_dir;
using nlohmann::json;
using planner::make_order;

const std::map<std::string, std::string> kOurs = {{"V-Half", "v-half"},
                                                  {"V-Min", "v-min"},
                                                  {"1F1B-V", "1f1b-v"},
                                                  {"GIS2_group=ceil(p/2)", "grouped-interleaved"}};

Figures simulate_ideal(const Order& order, const json& run) {
  const auto cost = [&run](const char* key) { return Nanoseconds(run[key].get<std::int64_t>()); };
  const StageCosts each{
      .f = cost("F"), .i = cost("B"), .w = cost("W"), .b = cost("B") + cost("W"), .opt = {}};
  const CostTable costs = CostTable::uniform(order.stages(), each, cost("comm"));
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs);
  EXPECT_TRUE(result.finished);
  return figures_of(program, result.timeline, costs);
}

void expect_recorded(const Figures& got, const json& recorded) {
  EXPECT_EQ(got.makespan_ns, recorded["makespan"].get<std::int64_t>());
  EXPECT_NEAR(got.span_bubble_ratio, recorded["bubble_rate_span"].get<double>(), 1e-12);
  std::int64_t span = 0;
  std::vector<int> peaks;
  for (const RankFigures& rank : got.ranks) {
    span = std::max(span, rank.span_ns);
    peaks.push_back(rank.peak_activations);
  }
  EXPECT_EQ(span, recorded["max_span"].get<std::int64_t>());
  std::vector<int> recorded_peaks;
  for (const auto& peak : recorded["peak_live_chunks_until_W_per_rank"]) {
    recorded_peaks.push_back(static_cast<int>(peak.get<double>()));
  }
  EXPECT_EQ(peaks, recorded_peaks);
}

TEST(BuildingBlocks, FiguresAndOrdersOfTheAuthorsRuns) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden_dir() / "zero_bubble/grid.json");
  int figures = 0, orders = 0;
  for (const char* file : {"grid.json", "unequal.json", "unit_small.json"}) {
    for (const auto& run : json::parse(golden::text_of(golden_dir() / "zero_bubble" / file))) {
      const auto found = kOurs.find(run["schedule"].get<std::string>());
      if (found == kOurs.end()) continue;
      SCOPED_TRACE(std::string(file) + " " + found->second + " p " + run["p"].dump() + " m " +
                   run["m"].dump() + " comm " + run["comm"].dump());
      ASSERT_TRUE(run.contains("evaluated"));  // none of these is refused
      const Order order = make_order(found->second, {run["p"], run["m"], run["chunks"], {}});
      expect_recorded(simulate_ideal(order, run), run["evaluated"]);
      ++figures;
      if (run["order_csv"].is_null()) continue;
      const auto csv = golden_dir() / "zero_bubble/orders" / run["order_csv"].get<std::string>();
      EXPECT_EQ(golden::rows_of(order), golden::rows_of_file(csv));
      ++orders;
    }
  }
  EXPECT_EQ(figures, 164);
  EXPECT_EQ(orders, 52);
}

}  // namespace building_blocks_test
}  // namespace pipewright
