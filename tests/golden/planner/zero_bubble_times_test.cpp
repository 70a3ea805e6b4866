// Orders made by the zero-bubble authors' code: makespan, span and peak as recorded, by both
// engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/base/json.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace zero_bubble_times_test {

class ZeroBubbleTimes : public testing::TestWithParam<const char*> {};

TEST_P(ZeroBubbleTimes, AreTheRecordedOnes) {
  const std::string folder = std::string(PIPEWRIGHT_GOLDEN_DIR) + "/zero_bubble/";
  if (!std::filesystem::exists(folder + GetParam())) GTEST_SKIP() << "no " << folder << GetParam();
  // `early` needs the queue engine; with tag channels and unlimited credit the times are those of
  // `ideal`.
  CommPolicy queued = comm_policy_preset("ideal");
  queued.post = Post::Early;
  int orders = 0;
  for (const auto& entry : parse_json(read_text(folder + GetParam()), GetParam())) {
    if (!entry.contains("order_csv") || entry["order_csv"].is_null()) continue;
    ++orders;
    const std::string name = entry["order_csv"];
    const Order order = read_order_csv(read_text(folder + "orders/" + name), name);
    const auto cost = [&entry](const char* key) {
      return Nanoseconds(entry[key].get<std::int64_t>());
    };
    const CostTable costs = CostTable::uniform(
        order.stages(),
        {.f = cost("F"), .i = cost("B"), .w = cost("W"), .b = cost("B") + cost("W"), .opt = {}},
        cost("comm"));
    for (const CommPolicy& policy : {comm_policy_preset("ideal"), queued}) {
      const Program program = lower(order, policy);
      const sim::Result result = sim::simulate(program, costs);
      ASSERT_TRUE(result.finished) << name;
      const Figures figures = figures_of(program, result.timeline, costs);
      std::int64_t span = 0;
      int peak = 0;
      for (const RankFigures& rank : figures.ranks) {
        span = std::max(span, rank.span_ns);
        peak = std::max(peak, rank.peak_activations);
      }
      const auto& recorded = entry["evaluated"];
      EXPECT_EQ(figures.makespan_ns, recorded["makespan"].get<std::int64_t>()) << name;
      EXPECT_EQ(span, recorded["max_span"].get<std::int64_t>()) << name;
      EXPECT_EQ(peak, recorded["peak_live_chunks_until_W"].get<int>()) << name;
      EXPECT_NEAR(figures.span_bubble_ratio, recorded["bubble_rate_span"].get<double>(), 1e-12)
          << name;
    }
  }
  EXPECT_GT(orders, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, ZeroBubbleTimes, testing::Values("grid.json", "unequal.json", "unit_small.json"),
    [](const auto& given) {
      return std::string(given.param).substr(0, std::string(given.param).find('.'));
    });

}  // namespace zero_bubble_times_test
}  // namespace pipewright
