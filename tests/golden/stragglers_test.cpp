// ByteDance's three jobs, of which the study says what made them slow (arXiv 2505.05713): a slow
// worker, a heavy last stage, sequences of unequal length. What-ifs name the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/engine.hpp"
#include "sim/what_if/what_if.hpp"
#include "tests/golden/bytedance.hpp"

namespace pipewright {
namespace stragglers_test {

/// By remedy, that is by what takes another time than a factor of its own, in how many of the job's
/// steps it gains most: "stages=mean", "micro-batches=mean", "rank:0=median".
std::map<std::string, int> best_remedies(const std::vector<golden::ReplayedStep>& steps) {
  std::map<std::string, int> best;
  for (const golden::ReplayedStep& step : steps) {
    const sim::TimedProgram timed(step.program, step.costs);
    const auto all = sim::what_ifs(timed, sim::simulate(step.program, step.costs).timeline);
    const auto first = std::find_if(all.begin(), all.end(), [](const sim::WhatIf& one) {
      return one.changes.front().becomes != sim::Becomes::Scaled;
    });
    if (first != all.end()) ++best[to_string(first->changes)];
  }
  return best;
}

class Stragglers : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Stragglers, AreNamedAsTheStudyNamesThem) {
  const auto [job, remedy] = GetParam();
  const auto steps = golden::bytedance_steps(job);
  if (steps.empty()) GTEST_SKIP() << "no steps of " << job;
  std::map<std::string, int> best = best_remedies(steps);
  EXPECT_EQ(best[remedy], static_cast<int>(steps.size()));
}
INSTANTIATE_TEST_SUITE_P(ByteDance, Stragglers,
                         testing::Values(std::pair("sequence", "micro-batches=mean"),
                                         std::pair("stage", "stages=mean"),
                                         std::pair("worker", "rank:0=median")),
                         [](const auto& param) { return std::string(param.param.first); });

}  // namespace stragglers_test
}  // namespace pipewright
