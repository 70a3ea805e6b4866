// The simulator against the literature's closed forms, in integer nanoseconds, for costs with
// F != I != W that are equal on all stages (policy `ideal`).
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <tuple>
#include <vector>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/bounds/closed_form.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace closed_form_test {

using planner::closed_form;
using planner::ScheduleRequest;

// F > I > W, F < I, W > F, F = I: each takes another branch of zb-h1's form.
constexpr std::int64_t kCosts[][3] = {{11, 7, 5}, {10, 15, 4}, {9, 13, 17}, {6, 6, 5}};

StageCosts stage_costs(const std::int64_t (&c)[3]) {
  StageCosts each;
  each.f = Nanoseconds(c[0]);
  each.i = Nanoseconds(c[1]);
  each.w = Nanoseconds(c[2]);
  each.b = each.i + each.w;
  return each;
}

void expect_equal(const char* name, const ScheduleRequest& request, std::int64_t latency = 0) {
  SCOPED_TRACE(std::string(name) + " p " + std::to_string(request.ranks) + " m " +
               std::to_string(request.micro_batches) + " v " + std::to_string(request.chunks));
  const Program program = lower(planner::make_order(name, request), comm_policy_preset("ideal"));
  for (const auto& c : kCosts) {
    const StageCosts each = stage_costs(c);
    const CostTable costs =
        CostTable::uniform(request.ranks * request.chunks, each, Nanoseconds(latency));
    const auto form = closed_form(name, request, each, Nanoseconds(latency));
    ASSERT_TRUE(form);
    const sim::Result result = sim::simulate(program, costs);
    ASSERT_TRUE(result.finished);
    const Figures figures = figures_of(program, result.timeline, costs);
    EXPECT_EQ(figures.makespan_ns, form->makespan_ns) << "F " << c[0] << " I " << c[1];
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
      EXPECT_EQ(figures.makespan_ns - figures.ranks[r].busy_ns, form->bubble_ns);
      EXPECT_EQ(figures.ranks[r].peak_activations, form->peak_activations[r]) << "rank " << r;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

/// PIPEWRIGHT_EVERY_CASE=1 asks for the whole grid, some minutes long.
bool every_case() { return std::getenv("PIPEWRIGHT_EVERY_CASE") != nullptr; }

/// m below, at and above p, next to the powers of two, and far above.
std::vector<int> micro_batches() {
  if (!every_case()) return {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 100, 128, 255, 256};
  std::vector<int> all(256);
  std::iota(all.begin(), all.end(), 1);
  return all;
}
const std::vector<int> kRanks = {2, 5, 8, 31, 64};

class SingleStage : public ::testing::TestWithParam<const char*> {};

TEST_P(SingleStage, EqualsTheClosedFormForEveryNumberOfRanks) {
  for (int p = 2; p <= 64; ++p) {
    for (const int m : micro_batches()) {
      expect_equal(GetParam(), {p, m, 1, {}});
      if (HasFailure()) return;
    }
  }
}

TEST_P(SingleStage, EqualsTheClosedFormForEveryNumberOfMicroBatches) {
  for (int m = 1; m <= 256; ++m) {
    for (const int p : kRanks) {
      expect_equal(GetParam(), {p, m, 1, {}});
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, SingleStage,
                         ::testing::Values("naive", "gpipe", "1f1b", "zb-h1", "eager-1f1b"));

/// Each of p - 1 hops is paid once going up and once going down: per micro-batch for naive, once
/// for gpipe.
TEST(ClosedForm, LatencyOfNaiveAndGpipe) {
  for (const int p : {2, 5, 16}) {
    for (const int m : {1, 4, 33}) {
      expect_equal("naive", {p, m, 1, {}}, 3);
      expect_equal("gpipe", {p, m, 1, {}}, 3);
    }
  }
}

/// The bubble of interleaved is (p-1)(F+B) of one chunk where a round is p micro-batches.
TEST(ClosedForm, Interleaved) {
  for (const int v : {1, 2, 3, 4}) {
    for (const int p : {2, 3, 4, 8, 16, 32, 64}) {
      for (int rounds = 1; rounds * p <= 256; rounds += rounds < 4 || every_case() ? 1 : rounds) {
        expect_equal("interleaved", {p, rounds * p, v, {}});
        if (HasFailure()) return;
      }
    }
  }
}

/// The peak has a form for every group that is allowed, also where the bubble has none.
TEST(ClosedForm, PeaksOfInterleavedForEveryGroup) {
  for (const auto& [p, m, v] : {std::tuple(4, 10, 3), std::tuple(4, 2, 2), std::tuple(8, 15, 2),
                                std::tuple(2, 7, 4), std::tuple(16, 40, 2)}) {
    for (int group = 1; group <= m; ++group) {
      const ScheduleRequest request{p, m, v, {{"group", std::to_string(group)}}};
      const auto peaks = planner::closed_form_peaks("interleaved", request);
      if (!peaks) continue;  // refused
      const Program program =
          lower(planner::make_order("interleaved", request), comm_policy_preset("ideal"));
      const auto ranks = peaks_of(program, CostTable::uniform(p * v, {}));
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        EXPECT_EQ(ranks[r].peak_activations, (*peaks)[r]) << p << " " << m << " " << group;
      }
    }
  }
}

TEST(ClosedForm, NoneWhereNoneHolds) {
  const StageCosts each = stage_costs(kCosts[0]);
  EXPECT_FALSE(closed_form("interleaved", {4, 2, 2, {}}, each));   // m < p
  EXPECT_FALSE(closed_form("interleaved", {4, 10, 2, {}}, each));  // G = 5
  EXPECT_FALSE(closed_form("interleaved", {4, 8, 2, {{"jobs", "split"}}}, each));
  EXPECT_FALSE(closed_form("paddle-vpp", {4, 8, 2, {}}, each));
  EXPECT_FALSE(closed_form("1f1b", {4, 8, 1, {}}, each, Nanoseconds(1)));  // latency
  EXPECT_FALSE(closed_form("1f1b", {4, 8, 2, {}}, each));                  // refused
}

}  // namespace closed_form_test
}  // namespace pipewright
