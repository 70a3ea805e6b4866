// ByteDance's production steps, their micro-batches dealt out anew: what that gains where sequences
// differ in length, and that nothing is promised where a rank is slow.
#include <gtest/gtest.h>

#include "core/costs/action_times.hpp"
#include "planner/balance/dealing.hpp"
#include "tests/golden/bytedance.hpp"

namespace pipewright {
namespace {

struct Gains {
  double least = 1, mean = 0, of_possible = 0;  // of the slowest replica's time
  double slowest_rank = 0;                      // how many times as long as most, on average
};

Gains gains_of(const std::vector<golden::ReplayedStep>& steps) {
  Gains gains;
  double possible = 0;
  for (const golden::ReplayedStep& step : steps) {
    const planner::Loads loads(step.program, step.costs, step.costs.actions->shape());
    const planner::Dealt dealt = planner::deal_out(step.program, step.costs, loads);
    const auto before = static_cast<double>(dealt.slowest_before());
    const double gain = 1 - static_cast<double>(dealt.slowest_after()) / before;
    const double count = static_cast<double>(steps.size());
    gains.least = std::min(gains.least, gain);
    gains.mean += gain / count;
    possible += (1 - static_cast<double>(dealt.least_ns) / before) / count;
    double slowest = 0;
    for (int r = 0; r < loads.shape().replicas; ++r) {
      for (int q = 0; q < loads.shape().ranks; ++q)
        slowest = std::max(slowest, loads.slowness(r, q));
    }
    gains.slowest_rank += slowest / count;
  }
  gains.of_possible = gains.mean / possible;
  return gains;
}

TEST(DealtOut, SequencesDealtOutEndEarlier) {
  const auto steps = golden::bytedance_steps("sequence");
  if (steps.empty()) GTEST_SKIP();
  const Gains gains = gains_of(steps);
  EXPECT_GT(gains.least, 0.15);
  EXPECT_GT(gains.mean, 0.24);
  EXPECT_GT(gains.of_possible, 0.75);  // the bound knows nothing of filling and draining
  EXPECT_LT(gains.slowest_rank, 1.15);
}

/// The last stage is slow in all replicas.
TEST(DealtOut, ASlowStageIsNotDealtAway) {
  const auto steps = golden::bytedance_steps("stage");
  if (steps.empty()) GTEST_SKIP();
  const Gains gains = gains_of(steps);
  EXPECT_GE(gains.least, 0);
  EXPECT_LT(gains.mean, 0.02);
  EXPECT_LT(gains.slowest_rank, 1.05);
}

TEST(DealtOut, ASlowRankIsNotDealtAway) {
  const auto steps = golden::bytedance_steps("worker");
  if (steps.empty()) GTEST_SKIP();
  const Gains gains = gains_of(steps);
  EXPECT_GE(gains.least, 0);
  EXPECT_LT(gains.mean, 0.05);
  EXPECT_GT(gains.slowest_rank, 2);
}

}  // namespace
}  // namespace pipewright
