// Schedules with two directions: DualPipe's and DualPipeV's totals, Chimera's slot grids.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace replicas_test {

using planner::make_order;

Figures simulate_ideal(const Order& order, const CostTable& costs) {
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs);
  EXPECT_TRUE(result.finished);
  return figures_of(program, result.timeline, costs);
}

std::vector<int> peaks(const Figures& figures) {
  std::vector<int> found;
  for (const RankFigures& rank : figures.ranks) found.push_back(rank.peak_activations);
  return found;
}

/// The file's costs have halves and fifths: in tenths all are whole.
Nanoseconds tenths(const nlohmann::json& number) {
  return Nanoseconds(std::llround(number.get<double>() * 10));
}

TEST(Replicas, DualPipeAndDualPipeVTakeTheRecordedTime) {
  const auto path = golden::golden_dir() / "dualpipe.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int compared = 0;
  for (const auto& entry : nlohmann::json::parse(golden::text_of(path))) {
    SCOPED_TRACE(entry.dump());
    const std::string name = entry["schedule"];
    const int p = entry["p"], m = entry["m"];
    const Order order = make_order(name, {p, m, name == "DualPipeV" ? 2 : 1, {}});
    StageCosts each;
    each.f = tenths(entry["F"]);
    each.i = tenths(entry["I"]);
    each.w = tenths(entry["W"]);
    each.b = tenths(entry["B"]);
    CostTable costs = CostTable::uniform(order.stages(), each);
    costs.overlapped_pair = tenths(entry["F_and_B"]);
    const Figures figures = simulate_ideal(order, costs);
    EXPECT_EQ(figures.makespan_ns, tenths(entry["ppviz_total"]).value);
    if (entry.contains("derived_peak_chunks")) {
      EXPECT_EQ(peaks(figures), entry["derived_peak_chunks"].get<std::vector<int>>());
    }
    ++compared;
  }
  EXPECT_EQ(compared, 36);
}

/// A rank's computations in the words of the slot grid: the unit (p/2 micro-batches, even ones go
/// down), the direction, and forward or backward.
std::string grid_words(const Order& order, std::size_t rank) {
  const int half = order.rank_count() / 2;
  std::string words;
  for (const Cell& cell : order.ranks[rank]) {
    if (cell.action.kind == ActionKind::Idle) continue;
    const int unit = cell.action.micro_batch.value / half;
    const bool down = cell.action.stage.value == static_cast<int>(rank);
    words += std::to_string(unit) + (down ? "@down@" : "@up@") +
             (cell.action.kind == ActionKind::F ? "f " : "b ");
  }
  return words;
}

/// The same of a row of the grid: idle slots and gradient syncs left out.
std::string computations(const std::string& row) {
  std::istringstream slots(row);
  std::string words, slot;
  while (std::getline(slots, slot, ',')) {
    if (!slot.empty() && slot.back() != 's') words += slot + " ";
  }
  return words;
}

StageCosts one_slot_each() {
  StageCosts each;
  each.f = each.b = Nanoseconds(1);
  return each;
}

TEST(Replicas, ChimeraComputesInTheOrderOfTheAuthorsGrids) {
  const auto path = golden::golden_dir() / "chimera.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int compared = 0;
  for (const auto& entry : nlohmann::json::parse(golden::text_of(path))) {
    const int p = entry["p"], n = entry["N"];
    SCOPED_TRACE("p " + std::to_string(p) + " N " + std::to_string(n));
    const Order order = make_order("chimera", {p, n, 1, {}});
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      EXPECT_EQ(grid_words(order, r), computations(entry["grid"][r])) << "rank " << r;
    }
    const Figures figures = simulate_ideal(order, CostTable::uniform(p, one_slot_each()));
    EXPECT_EQ(figures.makespan_ns, entry["compute_slots"].get<std::int64_t>());
    EXPECT_EQ(peaks(figures), entry["peak_inflight"].get<std::vector<int>>());
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

/// The authors' generator ends after 16, 16 and 32 of 24, 32 and 64 backwards here. The paper's
/// rule goes on, and takes the 2N + p - 2 slots that it takes everywhere.
TEST(Replicas, ChimeraIsWholeWhereItsAuthorsGeneratorStopsEarly) {
  for (const int p : {6, 8, 16}) {
    const int n = 4 * p;
    const Order order = make_order("chimera", {p, n, 1, {}});
    EXPECT_TRUE(problems_of(order).empty());
    const Figures figures = simulate_ideal(order, CostTable::uniform(p, one_slot_each()));
    EXPECT_EQ(figures.makespan_ns, 2 * n + p - 2);
    for (const RankFigures& rank : figures.ranks) EXPECT_EQ(rank.busy_ns, 2 * n);
  }
}

}  // namespace replicas_test
}  // namespace pipewright
