// The step whose timeline a run shows, against its definition read a second time.
#include "exec/runtime/shown_step.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/support/draw.hpp"

namespace pipewright::exec {
namespace shown_step_test {

Timeline timeline_of(std::int64_t makespan_ns, std::size_t instructions = 1) {
  Timeline timeline;
  for (auto* times : {&timeline.start, &timeline.moving, &timeline.end})
    times->assign(instructions, makespan_ns);
  timeline.makespan_ns = makespan_ns;
  return timeline;
}

/// Of the times from `first` on, each `stride`-th: the smaller of the middle two, the earlier step.
int median_step(const std::vector<std::int64_t>& times, int first, int stride) {
  std::set<std::pair<std::int64_t, int>> competing;
  for (int step = first; step < static_cast<int>(times.size()); step += stride)
    competing.insert({times[static_cast<std::size_t>(step)], step});
  return std::next(competing.begin(), static_cast<std::ptrdiff_t>((competing.size() - 1) / 2))
      ->second;
}

ShownStep::Step shown(const std::vector<std::int64_t>& times, int warm_up) {
  ShownStep shown(warm_up, true);
  for (const std::int64_t time : times) shown.add(timeline_of(time));
  return shown.take();
}

TEST(ShownStep, IsTheMedianOfAllStepsBehindTheWarmUpWhileTheyAreFew) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    test::Draw draw(seed);
    const int warm_up = draw.below(4);
    const int steps = 1 + draw.below(static_cast<int>(ShownStep::kMost) + warm_up);
    std::vector<std::int64_t> times;
    for (int i = 0; i < steps; ++i) times.push_back(draw.below(50));
    const int expected = median_step(times, std::min(warm_up, steps - 1), 1);
    const ShownStep::Step found = shown(times, warm_up);
    EXPECT_EQ(found.step, expected) << "seed " << seed;
    EXPECT_EQ(found.timeline.makespan_ns, times[static_cast<std::size_t>(expected)]);
  }
}

TEST(ShownStep, OfALongRunStepsAtEvenDistancesOverAllOfItCompete) {
  for (const int steps : {258, 513, 514, 1'000, 20'000}) {
    test::Draw draw(static_cast<std::uint32_t>(steps));
    std::vector<std::int64_t> times;
    for (int i = 0; i < steps; ++i) times.push_back(draw.below(1'000'000));
    int stride = 1;
    while ((steps - 2) / stride + 1 > static_cast<int>(ShownStep::kMost)) stride *= 2;
    EXPECT_GT(stride, 1);
    EXPECT_EQ(shown(times, 1).step, median_step(times, 1, stride)) << steps;
  }
}

TEST(ShownStep, HoldsFewTimelinesWhereTheyAreLongAndNeverNone) {
  for (const std::size_t instructions :
       {std::size_t{1'000}, std::size_t{5'000}, std::size_t{100'000}}) {
    ShownStep shown(0, true);
    Timeline spare = timeline_of(0, instructions);
    std::size_t made = 0;  // timelines that nobody gave back
    for (int step = 0; step < 600; ++step) {
      if (spare.end.empty()) ++made;
      spare = shown.add(timeline_of(step, instructions));
    }
    const std::size_t bytes = made * instructions * 3 * sizeof(std::int64_t);
    EXPECT_LE(bytes, std::max(ShownStep::kMostBytes + (std::size_t{1} << 20),
                              (ShownStep::kFewest + 2) * instructions * 3 * sizeof(std::int64_t)));
    EXPECT_EQ(shown.take().timeline.end.size(), instructions);
  }
}

TEST(ShownStep, WithoutAMedianTheLastStepIsShown) {
  ShownStep shown(1, false);
  for (int step = 0; step < 10; ++step) shown.add(timeline_of(100 - step));
  EXPECT_EQ(shown.take().step, 9);
}

TEST(ShownStep, ARunWithoutStepsShowsNothing) {
  EXPECT_TRUE(ShownStep(1, true).take().timeline.end.empty());
}

}  // namespace shown_step_test
}  // namespace pipewright::exec
