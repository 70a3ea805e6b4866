// What lies between two actions of a rank that wait for nothing.
#include <gtest/gtest.h>

#include "core/costs/costs.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "traces/analysis/action_gaps.hpp"

namespace pipewright::tests {
namespace action_gaps_test {

Program program_for(const char* schedule, int ranks, int micro_batches, const char* policy) {
  return lower(planner::make_order(schedule, {ranks, micro_batches, 1, {}}),
               comm_policy_preset(policy));
}

Timeline simulated(const Program& program) {
  const StageCosts each{Nanoseconds(1000), Nanoseconds(1000), Nanoseconds(1000)};
  return sim::simulate(program, CostTable::uniform(program.stages, each, Nanoseconds(100)))
      .timeline;
}

TEST(ActionGaps, LeaveOutActionsThatWaitForAMessage) {
  const Program program = program_for("1f1b", 4, 4, "torch");
  const Timeline timeline = simulated(program);
  const auto gaps = traces::action_gaps(program, timeline);
  EXPECT_LT(gaps.size(), 4U * 7U) << "bubbles are no gaps";
  EXPECT_GT(gaps.size(), 4U);
  for (const std::int64_t gap : gaps) EXPECT_EQ(gap, 0);
}

TEST(ActionGaps, CountFromTheEndOfTheOneBefore) {
  const Program program = program_for("gpipe", 1, 2, "ideal");
  Timeline timeline = simulated(program);
  ASSERT_EQ(program.code.size(), 4U);
  timeline.start = {0, 110, 205, 330};
  timeline.end = {100, 200, 300, 400};
  EXPECT_EQ(traces::action_gaps(program, timeline), (std::vector<std::int64_t>{5, 10, 30}));
}

}  // namespace action_gaps_test
}  // namespace pipewright::tests
