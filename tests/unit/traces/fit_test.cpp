// What a prediction misses, found again where it is known.
#include "traces/analysis/fit.hpp"

#include <gtest/gtest.h>

#include "core/order/action.hpp"
#include "traces/analysis/least_squares.hpp"

namespace pipewright::traces {
namespace fit_test {

constexpr const char* kKinds[] = {"F", "B"};

TraceSpan computation(const char* kind, int micro_batch, std::int64_t start, std::int64_t end) {
  TraceSpan span;
  span.cell = parse_cell("0" + std::string(kind) + std::to_string(micro_batch)).value();
  span.start_ns = span.moving_ns = start;
  span.end_ns = end;
  return span;
}

struct Two {
  TraceTimeline predicted, measured;
};

/// Rank 0 computes forty actions one behind the other; rank 1 computes beside every second one of
/// them. What each takes is given by the parameters.
Two two_ranks(double scale_f, double scale_b, double overhead, double contention) {
  Two two;
  two.predicted.ranks.resize(2);
  two.measured.ranks.resize(2);
  two.predicted.ranks[1].rank = two.measured.ranks[1].rank = 1;
  std::int64_t clock = 0;
  for (int k = 0; k < 40; ++k) {
    const bool backward = k % 3 == 0, beside = k % 2 == 0;
    const std::int64_t predicted = 10'000 + 700 * (k % 7);
    const double factor = (backward ? scale_b : scale_f) + (beside ? contention : 0);
    const auto measured =
        static_cast<std::int64_t>(overhead + static_cast<double>(predicted) * factor);
    const char* kind = kKinds[backward ? 1 : 0];
    for (int rank = 0; rank < (beside ? 2 : 1); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      two.predicted.ranks[r].spans.push_back(computation(kind, k, 0, predicted));
      two.measured.ranks[r].spans.push_back(computation(kind, k, clock, clock + measured));
    }
    clock += measured + 1000;
  }
  two.measured.makespan_ns = clock;
  return two;
}

TEST(Fit, FindsScalesOverheadAndContention) {
  const Two two = two_ranks(1.1, 0.9, 5000, 0.25);
  const Fit found = fit(two.predicted, two.measured).value();
  ASSERT_EQ(found.scales.size(), 2U);
  EXPECT_EQ(found.scales[0].kind, "F");
  EXPECT_NEAR(found.scales[0].scale, 1.1, 1e-3);
  EXPECT_NEAR(found.scales[1].scale, 0.9, 1e-3);
  EXPECT_NEAR(found.overhead_ns.value(), 5000, 10);
  EXPECT_NEAR(found.contention.value(), 0.25, 1e-3);
  EXPECT_EQ(found.actions, 60);
  EXPECT_EQ(found.left_out, 0);
  EXPECT_NEAR(found.mean_others, 40.0 / 60, 1e-9);
  EXPECT_GT(found.error_percent_before, 10);
  EXPECT_LT(found.error_percent_after, 0.01);
  EXPECT_NEAR(found.factor_of("F"), 1.1 + 0.25 * 40 / 60, 1e-3);
  EXPECT_EQ(found.factor_of("W"), 1);
}

TEST(Fit, IsNotBentByAFewActionsThatTookMuchLonger) {
  Two two = two_ranks(1.1, 0.9, 5000, 0.25);
  // Behind everything else, where nobody computes beside it.
  TraceSpan& last = two.measured.ranks[0].spans.back();
  last.end_ns += 40'000'000;
  const Fit found = fit(two.predicted, two.measured).value();
  EXPECT_EQ(found.left_out, 1);
  EXPECT_NEAR(found.scales[0].scale, 1.1, 1e-3);
  EXPECT_NEAR(found.overhead_ns.value(), 5000, 10);
}

TEST(Fit, LeavesWhatCannotBeToldApartToTheScale) {
  Two two;
  two.predicted.ranks.resize(1);
  two.measured.ranks.resize(1);
  for (int k = 0; k < 10; ++k) {
    two.predicted.ranks[0].spans.push_back(computation("F", k, 0, 1000));
    two.measured.ranks[0].spans.push_back(computation("F", k, 2000 * k, 2000 * k + 1200));
  }
  const Fit found = fit(two.predicted, two.measured).value();
  EXPECT_FALSE(found.overhead_ns);
  EXPECT_FALSE(found.contention);
  EXPECT_NEAR(found.scales[0].scale, 1.2, 1e-9);
  EXPECT_NEAR(found.error_percent_after, 0, 1e-9);
}

TEST(Fit, NeitherOverheadNorContentionIsBelowZero) {
  const Two two = two_ranks(1.5, 1.2, -3000, -0.2);
  const Fit found = fit(two.predicted, two.measured).value();
  EXPECT_EQ(found.overhead_ns, 0);
  EXPECT_EQ(found.contention, 0);
  EXPECT_LT(found.scales[0].scale, 1.5);
  EXPECT_GT(found.scales[0].scale, 1.0);
}

TEST(Fit, OfTimelinesWithoutACommonActionIsNothing) {
  EXPECT_FALSE(fit({}, {}));
  Two two = two_ranks(1, 1, 0, 0);
  two.predicted.ranks.clear();
  EXPECT_FALSE(fit(two.predicted, two.measured));
}

TEST(LeastSquares, SolvesALineThroughThreePoints) {
  LeastSquares squares(2);
  squares.add({1, 0}, 1);
  squares.add({1, 1}, 2);
  squares.add({1, 2}, 4);
  const auto found = squares.solve();
  EXPECT_NEAR(found[0].value(), 5.0 / 6, 1e-12);
  EXPECT_NEAR(found[1].value(), 1.5, 1e-12);
}

TEST(LeastSquares, GivesARepeatedColumnNoCoefficient) {
  LeastSquares squares(3);
  squares.add({1, 2, 1}, 3);
  squares.add({2, 4, 0}, 6);
  squares.add({3, 6, 5}, 9);
  const auto found = squares.solve();
  EXPECT_NEAR(found[0].value(), 3, 1e-12);
  EXPECT_FALSE(found[1]);
  EXPECT_NEAR(found[2].value(), 0, 1e-12);
}

}  // namespace fit_test
}  // namespace pipewright::traces
