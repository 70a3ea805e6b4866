// The schedules that plan for given costs, against the runs of the zero-bubble authors' code:
// spans, makespans, memory, and the orders themselves where theirs are recorded.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace zero_bubble_auto_test {

using golden::golden_dir;
using planner::make_order;
using planner::ScheduleRequest;

struct Outcome {
  Order order;
  std::int64_t makespan = 0, span = 0, peak_bytes = 0;
};

/// Makes the order and runs it under the papers' model.
Outcome outcome_of(const std::string& name, const ScheduleRequest& request) {
  Outcome outcome{make_order(name, request)};
  const Program program = lower(outcome.order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, request.costs);
  EXPECT_TRUE(result.finished);
  const Figures figures = figures_of(program, result.timeline, request.costs);
  outcome.makespan = figures.makespan_ns;
  for (const RankFigures& rank : figures.ranks) {
    outcome.span = std::max(outcome.span, rank.span_ns);
    outcome.peak_bytes = std::max(outcome.peak_bytes, rank.peak_bytes);
  }
  return outcome;
}

std::int64_t whole(const nlohmann::json& number) {
  return static_cast<std::int64_t>(number.get<double>());
}

ScheduleRequest request_of(const nlohmann::json& p, const nlohmann::json& m, int chunks) {
  ScheduleRequest request;
  request.ranks = p;
  request.micro_batches = m;
  request.chunks = chunks;
  return request;
}

/// The request of one entry of grid.json and its like.
ScheduleRequest request_of(const nlohmann::json& run) {
  ScheduleRequest request = request_of(run["p"], run["m"], run["chunks"]);
  StageCosts each;
  each.f = Nanoseconds(whole(run["F"]));
  each.i = Nanoseconds(whole(run["B"]));
  each.w = Nanoseconds(whole(run["W"]));
  each.b = each.i + each.w;
  const int stages = request.ranks * request.chunks;
  request.costs = CostTable::uniform(stages, each, Nanoseconds(whole(run["comm"])));
  const auto& memory = run["peer_mem_inputs"];
  const StageMemory bytes{Bytes(whole(memory["mem_f"])), Bytes(whole(memory["mem_b"])),
                          Bytes(whole(memory["mem_w"])), Bytes(0)};
  request.costs.memory.assign(static_cast<std::size_t>(stages), bytes);
  request.memory_limit = Bytes(whole(memory["max_mem"]));
  return request;
}

const std::map<std::string, std::string>& ours() {
  static const std::map<std::string, std::string> kNames = {
      {"ZB1P_unitmem", "zb-1p"}, {"ZB1P_tfmem", "zb-1p"}, {"ZB2P_unitmem", "zb-2p"},
      {"ZB2P_tfmem", "zb-2p"},   {"ZBV", "zbv-auto"},
  };
  return kNames;
}

TEST(ZeroBubbleAuto, EqualsTheAuthorsRunsWithTheirMemoryInputs) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden_dir() / "zero_bubble/grid.json");
  int figures = 0, orders = 0;
  for (const char* file : {"grid.json", "unequal.json", "unit_small.json"}) {
    const auto runs = nlohmann::json::parse(golden::text_of(golden_dir() / "zero_bubble" / file));
    for (const auto& run : runs) {
      const auto name = ours().find(run["schedule"]);
      if (name == ours().end() || !run.contains("evaluated")) continue;
      SCOPED_TRACE(std::string(file) + " " + name->first + " p " + run["p"].dump() + " m " +
                   run["m"].dump() + " c " + run["comm"].dump());
      const ScheduleRequest request = request_of(run);
      const Outcome got = outcome_of(name->second, request);
      EXPECT_EQ(got.span, whole(run["evaluated"]["max_span"]));
      EXPECT_EQ(got.makespan, whole(run["evaluated"]["makespan"]));
      EXPECT_LE(got.peak_bytes, request.memory_limit.value);
      ++figures;
      if (run["order_csv"].is_null()) continue;
      const auto csv = golden_dir() / "zero_bubble/orders" / run["order_csv"].get<std::string>();
      EXPECT_EQ(golden::rows_of(got.order), golden::rows_of_file(csv));
      ++orders;
    }
  }
  EXPECT_EQ(figures, 205);
  EXPECT_EQ(orders, 65);
}

TEST(ZeroBubbleAuto, Table5OfThePaper) {
  const auto path = golden_dir() / "zero_bubble/paper_table5.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int rows = 0;
  for (const auto& row : nlohmann::json::parse(golden::text_of(path))) {
    SCOPED_TRACE(row["model"].get<std::string>() + " m " + row["m"].dump());
    ScheduleRequest request = request_of(row["p"], row["m"], 1);
    StageCosts each;
    each.f = Nanoseconds(whole(row["T_F"]));
    each.i = Nanoseconds(whole(row["T_B"]));
    each.w = Nanoseconds(whole(row["T_W"]));
    each.b = each.i + each.w;
    request.costs = CostTable::uniform(request.ranks, each, Nanoseconds(whole(row["T_comm"])));
    const StageMemory bytes{Bytes(whole(row["mem_f"])), Bytes(whole(row["mem_b"])),
                            Bytes(whole(row["mem_w"])), Bytes(0)};
    request.costs.memory.assign(static_cast<std::size_t>(request.ranks), bytes);
    for (const auto& [theirs, name] : {std::pair("ZB-1p", "zb-1p"), std::pair("ZB-2p", "zb-2p")}) {
      const Outcome got = outcome_of(name, request);
      EXPECT_EQ(got.span, whole(row["evaluated"][theirs]["max_span"]));
      EXPECT_EQ(got.makespan, whole(row["evaluated"][theirs]["makespan"]));
      const double busy = static_cast<double>(request.micro_batches * (each.f + each.b).value);
      const double rate = 1 - busy / static_cast<double>(got.span);
      EXPECT_EQ(std::round(rate * 1e4), std::round(row["paper"][theirs].get<double>() * 1e4));
    }
    ++rows;
  }
  EXPECT_EQ(rows, 12);
}

/// Proved optima of the longest span (small sizes, in order on each rank).
TEST(ZeroBubbleAuto, IsOptimalWhereTheOptimumIsKnown) {
  const auto path = golden_dir() / "zero_bubble/ilp.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int runs = 0;
  const auto document = nlohmann::json::parse(golden::text_of(path));
  for (const auto& run : document["runs"]) {
    ScheduleRequest request = request_of(run["p"], run["m"], 1);
    StageCosts each;
    each.f = Nanoseconds(whole(run["F"]));
    each.i = Nanoseconds(whole(run["B"]));
    each.w = Nanoseconds(whole(run["W"]));
    each.b = each.i + each.w;
    request.costs = CostTable::uniform(request.ranks, each, Nanoseconds(whole(run["comm"])));
    request.memory_limit = Bytes(whole(run["max_mem_in_M_B"]));
    EXPECT_EQ(outcome_of("zb-1p", request).span, whole(run["ilp_objective"])) << run.dump();
    ++runs;
  }
  EXPECT_EQ(runs, 19);
}

}  // namespace zero_bubble_auto_test
}  // namespace pipewright
