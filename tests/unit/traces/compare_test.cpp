// Comparison of timelines, by hand.
#include "traces/analysis/compare.hpp"

#include <gtest/gtest.h>

#include "tests/support/traced.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/trace.hpp"

namespace pipewright::traces {
namespace compare_test {

test::Traced predicted() {
  return test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"),
                          "F=1000,B=2000,comm=500");
}

/// The same step measured: 1B0 took 500 longer, 0F0 100 less, everything behind accordingly.
Timeline measured(const test::Traced& t) {
  Timeline m = t.timeline;
  m.end[t.id("0F0")] = 900;
  m.end[t.id("1B0")] += 500;
  m.start[t.id("0B0")] += 500;
  m.end[t.id("0B0")] += 500;
  m.end[t.id("0RECV_B0")] += 700;  // 200 of it the message itself: moving starts 500 later
  m.moving[t.id("0RECV_B0")] += 500;
  m.makespan_ns += 500;
  return m;
}

TEST(Compare, StepKindsRanksAndTheWorstAction) {
  const test::Traced t = predicted();
  const Comparison c = compare(t.program, t.timeline, measured(t));
  EXPECT_EQ(c.step.predicted_ns, 7000);
  EXPECT_EQ(c.step.measured_ns, 7500);
  EXPECT_DOUBLE_EQ(c.step.error_percent(), 100.0 * -500 / 7500);

  ASSERT_EQ(c.kinds.size(), 4U);
  EXPECT_EQ(c.kinds[0].kind, "F");
  EXPECT_EQ(c.kinds[0].count, 2);
  EXPECT_EQ(c.kinds[0].sum.predicted_ns, 2000);
  EXPECT_EQ(c.kinds[0].sum.measured_ns, 1900);
  EXPECT_EQ(c.kinds[0].absolute_error_ns, 100);
  EXPECT_EQ(c.kinds[1].kind, "B");
  EXPECT_EQ(c.kinds[1].sum.measured_ns, 4500);
  EXPECT_EQ(c.kinds[2].kind, "SEND_F");
  EXPECT_EQ(c.kinds[2].sum.predicted_ns, 500);
  EXPECT_EQ(c.kinds[3].kind, "SEND_B");
  EXPECT_EQ(c.kinds[3].sum.measured_ns, 700);

  ASSERT_EQ(c.ranks.size(), 2U);
  EXPECT_EQ(c.ranks[0].busy.measured_ns, 2900);
  EXPECT_EQ(c.ranks[1].busy.measured_ns, 3500);

  // Predicted: 3000 of 7000 on each rank; measured: 2900 and 3500 of 7500.
  EXPECT_DOUBLE_EQ(c.bubble.predicted, 1 - 6000.0 / 14000);
  EXPECT_DOUBLE_EQ(c.bubble.measured, 1 - 6400.0 / 15000);
  ASSERT_EQ(c.bubble_of.size(), 2U);
  EXPECT_DOUBLE_EQ(c.bubble_of[1].measured, 1 - 3500.0 / 7500);

  // Four computations; errors 100, 0, 500, 0; measured 900 + 1000 + 2500 + 2000.
  EXPECT_EQ(c.compared_actions, 4);
  EXPECT_DOUBLE_EQ(c.mean_absolute_error_ns, 150.0);
  EXPECT_DOUBLE_EQ(c.mean_absolute_error_percent, 100.0 * 600 / 6400);
  EXPECT_EQ(c.worst.action, "1B0");
  EXPECT_EQ(c.worst.rank, 1);
  EXPECT_EQ(c.worst.times.predicted_ns, 2000);
  EXPECT_EQ(c.worst.times.measured_ns, 2500);
}

TEST(Compare, ATimelineEqualsItself) {
  const test::Traced t = test::traced_schedule("interleaved", 4, 8, 2, "torch", "F=3,B=5,comm=1");
  const Comparison c = compare(t.program, t.timeline, t.timeline);
  EXPECT_EQ(c.step.error_ns(), 0);
  EXPECT_EQ(c.compared_actions, 2 * 8 * 8);
  EXPECT_EQ(c.mean_absolute_error_ns, 0);
  EXPECT_EQ(c.worst.times.error_ns(), 0);
  EXPECT_EQ(c.worst.action, "0F0") << "of equals, the earliest of the lowest rank";
}

TEST(Compare, ThroughFilesItIsTheSame) {
  const test::Traced t = predicted();
  const Timeline m = measured(t);
  const auto through_file = [&](const Timeline& timeline) {
    return parse_trace(chrome_trace(t.program, timeline, t.costs, {.title = "x"}), "t.json");
  };
  const Comparison c = compare(through_file(t.timeline), through_file(m));
  EXPECT_EQ(c.step.error_ns(), -500);
  EXPECT_EQ(c.worst.action, "1B0");
  EXPECT_DOUBLE_EQ(c.mean_absolute_error_ns, 150.0);
}

TEST(Compare, CountsWhatHasNoPartner) {
  const test::Traced one = predicted();
  const test::Traced two = test::traced_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                                            comm_policy_preset("ideal"), "F=1000,B=2000");
  const Comparison c =
      compare(trace_timeline(one.program, one.timeline), trace_timeline(two.program, two.timeline));
  EXPECT_EQ(c.compared_actions, 4);
  EXPECT_EQ(c.only_predicted, 0);
  EXPECT_EQ(c.only_measured, 4);
}

TEST(Compare, ErrorsInPercentWithoutAMeasurement) {
  EXPECT_DOUBLE_EQ((ComparedTimes{110, 100}.error_percent()), 10.0);
  EXPECT_DOUBLE_EQ((ComparedTimes{0, 0}.error_percent()), 0.0);
  EXPECT_DOUBLE_EQ((ComparedTimes{5, 0}.error_percent()), 100.0);
}

}  // namespace compare_test
}  // namespace pipewright::traces
