// What the schedules of repeated building blocks promise, where no other system's answer is at
// hand: memory, bubbles for equal costs, an end under every policy of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/bounds/closed_form.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace building_blocks_test {

using planner::closed_form_peaks;
using planner::make_order;
using planner::ScheduleRequest;

constexpr const char* kShapedAsV[] = {"v-half", "v-min", "1f1b-v"};

CostTable equal_costs(int stages) {
  const Nanoseconds one(1);
  return CostTable::uniform(stages, {.f = one, .i = one, .w = one, .b = one + one, .opt = {}});
}

std::vector<int> peaks_of_order(const Order& order) {
  const Program program = lower(order, comm_policy_preset("ideal"));
  std::vector<int> peaks;
  for (const RankFigures& rank : peaks_of(program, equal_costs(order.stages()))) {
    peaks.push_back(rank.peak_activations);
  }
  return peaks;
}

/// Makespan minus the work of one rank, for F = I = W = 1.
std::int64_t unit_bubble(const char* name, const ScheduleRequest& request) {
  const Order order = make_order(name, request);
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, equal_costs(order.stages()));
  EXPECT_TRUE(result.finished);
  return result.timeline.makespan_ns - std::int64_t{3} * request.chunks * request.micro_batches;
}

/// Chunks that the paper's memory fraction comes to: p/2, p/3 and 2p/3 micro-batches, rounded.
int promised(const std::string& name, int p) {
  if (name == "v-half") return p % 2 == 0 ? p + 2 : p + 1;
  if (name == "v-min") return 2 * ((p + 4) / 3);
  return 2 * ((2 * p + 1 + 2) / 3);
}

TEST(BuildingBlocks, TheBlocksMemoryIsReachedAndNeverExceeded) {
  for (const char* name : kShapedAsV) {
    for (int p = 1; p <= 64; p += p < 20 ? 1 : 11) {
      const int most = promised(name, p);
      for (const int m : std::set<int>{1, p / 2 + 1, most - 2, most - 1, p, p + 1, 2 * p, 3 * p}) {
        if (m < 1) continue;
        SCOPED_TRACE(std::string(name) + " p " + std::to_string(p) + " m " + std::to_string(m));
        const ScheduleRequest request{p, m, 2, {}};
        const std::vector<int> got = peaks_of_order(make_order(name, request));
        EXPECT_EQ(*std::max_element(got.begin(), got.end()), std::min(2 * m, most));
        const auto form = closed_form_peaks(name, request);
        ASSERT_EQ(form.has_value(), m >= most - 1);
        if (form.has_value()) {
          EXPECT_EQ(got, *form);
        }
      }
    }
  }
}

TEST(BuildingBlocks, PeaksOfGroupedInterleavedForEveryGroup) {
  int compared = 0;
  for (int p = 1; p <= 9; ++p) {
    for (int group = (p + 1) / 2; group <= p; ++group) {
      for (int v = 1; v <= 4; ++v) {
        for (int m = 1; m <= 3 * p + 1; ++m) {
          const ScheduleRequest request{p, m, v, {{"group", std::to_string(group)}}};
          EXPECT_EQ(peaks_of_order(make_order("grouped-interleaved", request)),
                    closed_form_peaks("grouped-interleaved", request))
              << p << " " << group << " " << v << " " << m;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

/// The bubbles that the entries state for F = I = W. They were found by running, not derived.
TEST(BuildingBlocks, BubblesForEqualCosts) {
  for (int p = 3; p <= 40; ++p) {
    for (const int m : {p + 2, 2 * p + 1, 4 * p}) {
      SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m));
      EXPECT_EQ(unit_bubble("v-half", {p, m, 2, {}}), p % 2 == 0 ? 3 * p - 7 : 3 * p - 4);
      EXPECT_EQ(unit_bubble("v-min", {p, m, 2, {}}), p % 3 == 0 ? 4 * p - 7 : 4 * p - 5);
    }
  }
  for (int p = 2; p <= 40; p += 2) {
    for (const int groups : {2, 3, 7}) {
      EXPECT_EQ(unit_bubble("grouped-interleaved", {p, groups * p / 2, 2, {}}), 5 * p / 2 - 2) << p;
    }
  }
  for (const int p : {4, 7, 10, 22, 40}) {
    EXPECT_EQ(unit_bubble("1f1b-v", {p, 2 * p, 2, {}}), 5 * (p - 1));
  }
}

/// NCCL with a communicator for each directed edge, and PyTorch's one for each pair.
TEST(BuildingBlocks, EndUnderThePoliciesOfAPlan) {
  for (const char* name : {"v-half", "v-min", "1f1b-v", "grouped-interleaved"}) {
    for (int p = 1; p <= 9; ++p) {
      for (const int m : {1, 2, p, p + 1, 2 * p, 3 * p + 1}) {
        const Order order = make_order(name, {p, m, 2, {}});
        EXPECT_THAT(problems_of(order), ::testing::IsEmpty());
        for (const CommPolicy& policy : {CommPolicy{}, comm_policy_preset("torch-pair")}) {
          EXPECT_EQ(sim::check(lower(order, policy), equal_costs(2 * p)).verdict, Verdict::Ok)
              << name << " " << p << " " << m;
        }
      }
    }
  }
}

TEST(BuildingBlocks, RefusalsNameTheWayOut) {
  const auto refused = [](const char* name, const ScheduleRequest& request) {
    return planner::refusal_of(planner::find_schedule(name), request).value_or("");
  };
  using ::testing::HasSubstr;
  for (const char* name : kShapedAsV) {
    EXPECT_THAT(refused(name, {4, 8, 1, {}}), HasSubstr("use vpp 2"));
    EXPECT_THAT(refused(name, {30000, 1, 2, {}}), HasSubstr("use fewer ranks"));
    EXPECT_EQ(refused(name, {1, 1, 2, {}}), "");
  }
  const char* grouped = "grouped-interleaved";
  EXPECT_THAT(refused(grouped, {5, 8, 2, {{"group", "2"}}}), HasSubstr("from 3"));
  EXPECT_THAT(refused(grouped, {5, 8, 2, {{"group", "6"}}}), HasSubstr("to 5"));
  EXPECT_THAT(refused(grouped, {5, 8, 2, {{"group", "x"}}}), HasSubstr("\"x\""));
  EXPECT_EQ(refused(grouped, {5, 1, 3, {{"group", "5"}}}), "");
}

}  // namespace building_blocks_test
}  // namespace pipewright
