// Production steps with the measured duration of each pass: does the slowest replica end when it
// did?
#include <gtest/gtest.h>

#include <cmath>

#include "sim/engine.hpp"
#include "tests/golden/bytedance.hpp"

namespace pipewright {
namespace {

class Replay : public testing::TestWithParam<const char*> {};

TEST_P(Replay, TheSlowestReplicaEndsWhenItDid) {
  const auto steps = golden::bytedance_steps(GetParam());
  if (steps.empty()) GTEST_SKIP() << "no steps of " << GetParam();
  double sum = 0;
  for (const golden::ReplayedStep& step : steps) {
    const sim::Result result = sim::simulate(step.program, step.costs);
    ASSERT_TRUE(result.finished);
    const auto replayed = static_cast<double>(result.timeline.makespan_ns) / 1e6;
    sum += std::abs(replayed / step.slowest_ms - 1);
  }
  EXPECT_LE(sum / static_cast<double>(steps.size()), 0.003) << steps.size();
}
INSTANTIATE_TEST_SUITE_P(ByteDance, Replay, testing::Values("sequence", "stage", "worker"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace pipewright
