// Schedules with a fixed rule: rows written out by hand from the rule, refusals, and where another
// system's order is another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace fixed_schedules_test {

using ::testing::HasSubstr;

/// Idle slots left out.
std::string row(const Order& order, std::size_t rank) {
  std::string text;
  for (const Cell& cell : order.ranks[rank]) {
    if (cell.action.kind == ActionKind::Idle) continue;
    text += (text.empty() ? "" : " ") + to_string(cell);
  }
  return text;
}

std::string refused(const char* name, const ScheduleRequest& request) {
  try {
    make_order(name, request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<int> peaks(const Order& order) {
  std::vector<int> found;
  const Program program = lower(order, comm_policy_preset("ideal"));
  for (const RankFigures& rank : peaks_of(program, CostTable::uniform(order.stages(), {}))) {
    found.push_back(rank.peak_activations);
  }
  return found;
}

TEST(FixedSchedules, EveryOrderEndsUnderThePlansDefault) {
  int made = 0;
  for (const char* name : {"eager-1f1b", "looped-bfs", "zb-h2", "interleaved-zb", "zbv",
                           "dualpipev", "dualpipe", "chimera", "hanayo", "paddle-zbh1"}) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 18; ++m) {
        for (int v = 1; v <= 4; ++v) {
          const ScheduleRequest request{p, m, v, {}};
          if (refusal_of(find_schedule(name), request)) continue;
          const Order order = make_order(name, request);
          const CostTable costs = CostTable::uniform(order.stages(), {});
          EXPECT_EQ(sim::check(lower(order, CommPolicy{}), costs).verdict, Verdict::Ok)
              << name << " " << p << " " << m << " " << v;
          ++made;
        }
      }
    }
  }
  EXPECT_GT(made, 1000);
}

TEST(FixedSchedules, OneRankOneMicroBatchIsOneOfEach) {
  for (const char* name : {"eager-1f1b", "looped-bfs", "paddle-zbh1"}) {
    EXPECT_EQ(row(make_order(name, {1, 1, 1, {}}), 0), "0F0 0B0") << name;
  }
  EXPECT_EQ(row(make_order("zb-h2", {1, 1, 1, {}}), 0), "0F0 0I0 0W0");
  EXPECT_EQ(row(make_order("zbv", {1, 1, 2, {}}), 0), "0F0 1F0 1I0 1W0 0I0 0W0");
  EXPECT_EQ(row(make_order("hanayo", {1, 1, 2, {}}), 0), "0F0 1F0 1I0 1W0 0I0 0W0");
}

TEST(FixedSchedules, Eager1f1bRunsAheadTwiceAsFar) {
  EXPECT_EQ(row(make_order("eager-1f1b", {3, 4, 1, {}}), 1), "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3");
  EXPECT_EQ(row(make_order("eager-1f1b", {3, 2, 1, {}}), 0), "0F0 0F1 0B0 0B1");
}

TEST(FixedSchedules, LoopedBfsTakesBackwardsInTheOppositeOrder) {
  EXPECT_EQ(row(make_order("looped-bfs", {2, 2, 2, {}}), 1), "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0");
}

TEST(FixedSchedules, ZbH2KeepsTwiceAsManyWeightGradientsBackAsZbH1) {
  EXPECT_EQ(row(make_order("zb-h2", {2, 4, 1, {}}), 0),
            "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row(make_order("zb-h2", {2, 4, 1, {}}), 1),
            "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3");
}

/// topal-team/elf's generate_zbh2_schedule keeps all W's of a rank back, so that its rank 0 holds
/// m - 1 activations; the paper's order holds 2p-1 on every rank.
TEST(FixedSchedules, ZbH2HoldsTwoPMinusOneActivationsForAnyNumberOfMicroBatches) {
  for (const int p : {2, 4, 8}) {
    for (const int m : {2 * p, 24, 64}) {
      EXPECT_EQ(peaks(make_order("zb-h2", {p, m, 1, {}})),
                std::vector<int>(static_cast<std::size_t>(p), 2 * p - 1));
    }
  }
}

TEST(FixedSchedules, InterleavedZbWithOneChunkIsZbH1) {
  for (const auto& [p, m] : {std::pair(1, 3), std::pair(4, 8), std::pair(4, 2), std::pair(5, 15)}) {
    const Order ours = make_order("interleaved-zb", {p, m, 1, {}});
    const Order zb_h1 = make_order("zb-h1", {p, m, 1, {}});
    for (std::size_t r = 0; r < ours.ranks.size(); ++r) EXPECT_EQ(row(ours, r), row(zb_h1, r));
  }
}

TEST(FixedSchedules, DualPipeIsDualPipeVWithTheSecondHalfComingFromTheOtherEnd) {
  // p = 2, one rank each way; micro-batches 0 and 1 go down, 2 and 3 up.
  const Order order = make_order("dualpipe", {2, 4, 1, {}});
  EXPECT_EQ(row(order, 0), "0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1");
  EXPECT_EQ(row(order, 1), "0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3");
}

TEST(FixedSchedules, ChimeraTakesUnitsOfHalfAsManyMicroBatchesAsRanksInTurnDownAndUp) {
  // p = 2: micro-batch 0 goes down, 1 up; then 2 and 3.
  EXPECT_EQ(row(make_order("chimera", {2, 4, 1, {}}), 0), "0F0 1F1 1B1 0B0 0F2 1F3 1B3 0B2");
  EXPECT_EQ(row(make_order("chimera", {2, 4, 1, {}}), 1), "0F1 1F0 1B0 0B1 0F3 1F2 1B2 0B3");
}

/// The last micro-batch is split on every rank but the first, and the first r on rank r.
TEST(FixedSchedules, PaddlesZbh1SplitsTheFirstFewAndTheLastBackward) {
  EXPECT_EQ(row(make_order("paddle-zbh1", {3, 4, 1, {}}), 2),
            "2F0 2I0 2F1 2I1 2F2 2B2 2F3 2I3 2W3 2W0 2W1");
  EXPECT_NE(row(make_order("ZBH1", {3, 4, 1, {}}), 2), row(make_order("ZB-H1", {3, 4, 1, {}}), 2));
}

TEST(FixedSchedules, RefusalsNameTheWayOut) {
  EXPECT_THAT(refused("interleaved-zb", {4, 9, 2, {}}), HasSubstr("use 8 or 10 micro-batches"));
  EXPECT_THAT(refused("zb-h2", {4, 8, 2, {}}), HasSubstr("interleaved"));
  EXPECT_THAT(refused("zbv", {4, 8, 1, {}}), HasSubstr("use vpp 2"));
  EXPECT_THAT(refused("zbv", {20000, 1, 2, {}}), HasSubstr("at most 4000 ranks"));
  EXPECT_THAT(refused("dualpipev", {4, 7, 2, {}}), HasSubstr("use 8 micro-batches, or zbv"));
  EXPECT_THAT(refused("dualpipev", {4, 8, 4, {}}), HasSubstr("use vpp 2"));
  EXPECT_THAT(refused("dualpipe", {3, 8, 1, {}}), HasSubstr("use 2 or 4 ranks"));
  EXPECT_THAT(refused("dualpipe", {1, 8, 1, {}}), HasSubstr("use 2 ranks"));
  EXPECT_THAT(refused("dualpipe", {4, 6, 1, {}}), HasSubstr("use 8 micro-batches"));
  EXPECT_THAT(refused("dualpipe", {4, 9, 1, {}}), HasSubstr("use 8 or 10 micro-batches"));
  EXPECT_THAT(refused("dualpipe", {4, 8, 2, {}}), HasSubstr("use vpp 1"));
  EXPECT_THAT(refused("chimera", {4, 6, 1, {}}), HasSubstr("use 4 or 8 micro-batches"));
  EXPECT_THAT(refused("chimera", {4, 3, 1, {}}), HasSubstr("use 4 micro-batches"));
  EXPECT_THAT(refused("hanayo", {4, 8, 3, {}}), HasSubstr("use vpp 2 or 4"));
  EXPECT_THAT(refused("hanayo", {4, 8, 1, {}}), HasSubstr("use vpp 2"));
  EXPECT_THAT(refused("hanayo", {4, 8, 2, {{"backward", "both"}}}), HasSubstr("\"fused\""));
  EXPECT_THAT(refused("paddle-zbh1", {4, 3, 1, {}}), HasSubstr("use 4 micro-batches, or zb-h1"));
}

}  // namespace fixed_schedules_test
}  // namespace pipewright::planner
