// The comparison of two runs, on arrays whose difference is known by hand.
#include "exec/devices/cpu/verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace verify_test {

using Array = std::vector<float>;

TEST(UlpsApart, AreUnitsInTheLastPlaceOfTheScale) {
  const float next = std::nextafter(1.0F, 2.0F);
  EXPECT_EQ(ulps_apart(1.0F, 1.0F, 1), 0);
  EXPECT_EQ(ulps_apart(1.0F, next, 1), 1);
  EXPECT_EQ(ulps_apart(next, 1.0F, 1), 1);
  EXPECT_EQ(ulps_apart(1.0F, next, 2), 1);  // half of one: rounded up
  EXPECT_EQ(ulps_apart(0.0F, -0.0F, 0), 0);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ulps_apart(tiny, -tiny, 0), 2);
  EXPECT_EQ(ulps_apart(1.0F, 2.0F, 1), 1 << 23);  // one binade
  EXPECT_EQ(ulps_apart(1.0F, NAN, 1), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ulps_apart(1.0F, INFINITY, 1), std::numeric_limits<std::int64_t>::max());
}

/// What is left where large numbers cancel has their rounding, whatever its own size and sign.
TEST(Verify, RoundingNearZeroIsMeasuredByTheSizeOfTheOthers) {
  const Array reference = {1, -2, 1e-12F, -3e-13F, 0}, run = {1, -2, -2e-8F, 3e-13F, 1e-9F};
  const VerifyReport report = verify(std::vector<ParameterView>{{"x", reference, run}},
                                     std::vector<ParameterView>{{"x", reference, reference}});
  EXPECT_LT(report.gradients.norm_rel, 1e-7);
  EXPECT_EQ(report.gradients.max_ulp, 1);  // a billion and a half by units of their own
  EXPECT_FALSE(report.gradients.bitwise);
  // Alone, in an array of its own, it is measured by the other arrays.
  const Array large = {1, -2}, small = {1e-12F}, other = {-2e-8F};
  const VerifyReport apart =
      verify(std::vector<ParameterView>{{"x", large, large}, {"y", small, other}},
             std::vector<ParameterView>{{"x", large, large}, {"y", small, small}});
  EXPECT_EQ(apart.gradients.max_ulp, 1);
}

/// A relative norm bounds it: no element is off by more than the norm of all differences.
TEST(Verify, SmallNormsLeaveFewUlps) {
  Array reference(1000), run(1000);
  for (std::size_t i = 0; i < reference.size(); ++i) {
    reference[i] = std::ldexp(i % 2 == 0 ? 1.0F : -1.0F, -static_cast<int>(i % 100));
    run[i] = reference[i] + (i % 3 == 0 ? 1e-9F : -1e-9F);
  }
  const VerifyReport report = verify(std::vector<ParameterView>{{"x", reference, run}},
                                     std::vector<ParameterView>{{"x", reference, reference}});
  const double bound = report.gradients.norm_rel * std::sqrt(1000) * 0x1p24;
  EXPECT_LE(static_cast<double>(report.gradients.max_ulp), std::ceil(bound));
}

TEST(Verify, MeasuresTheDistanceAndNamesTheWorst) {
  const Array a = {3, 4}, b = {3, 4.5}, c = {0, 12}, weights = {1, 2};
  const std::vector<ParameterView> reference = {{"x", weights, a}, {"y", weights, c}};
  // The order of the run's arrays does not matter.
  const std::vector<ParameterView> run = {{"y", weights, c}, {"x", weights, b}};
  const VerifyReport report = verify(run, reference);
  // |difference| = 0.5, |reference| = sqrt(9 + 16 + 144) = 13; of x alone sqrt(9 + 16) = 5.
  EXPECT_DOUBLE_EQ(report.gradients.norm_rel, 0.5 / 13);
  EXPECT_EQ(report.gradients.worst, "x");
  EXPECT_DOUBLE_EQ(report.gradients.worst_norm_rel, 0.1);
  EXPECT_EQ(report.gradients.max_ulp, 1 << 20);  // 4 -> 4.5: an eighth of a binade
  EXPECT_FALSE(report.gradients.bitwise);
  EXPECT_TRUE(report.parameters.bitwise);
  EXPECT_EQ(report.parameters.norm_rel, 0);
  EXPECT_EQ(report.compared, 2);
}

TEST(Verify, ANanIsNeverAgreement) {
  const Array good = {1, 2}, bad = {1, NAN};
  const VerifyReport report = verify(std::vector<ParameterView>{{"x", good, bad}},
                                     std::vector<ParameterView>{{"x", good, good}});
  EXPECT_TRUE(std::isnan(report.gradients.norm_rel));
  EXPECT_EQ(report.gradients.worst, "x");
  EXPECT_FALSE(report.gradients.norm_rel <= 1e-6);
}

/// The step with the worst gradients need not be the one with the worst weights.
TEST(Verify, OfTwoStepsEachKeepsItsWorst) {
  const auto report = [](double gradients, double parameters) {
    VerifyReport one;
    one.gradients = {.norm_rel = gradients, .bitwise = gradients == 0, .worst = "g"};
    one.parameters = {.norm_rel = parameters, .bitwise = parameters == 0, .worst = "p"};
    one.compared = 3;
    return one;
  };
  for (const VerifyReport& worse :
       {worse_of(report(0.1, 0), report(0.05, 0.2)), worse_of(report(0.05, 0.2), report(0.1, 0))}) {
    EXPECT_EQ(worse.gradients.norm_rel, 0.1);
    EXPECT_EQ(worse.parameters.norm_rel, 0.2);
    EXPECT_FALSE(worse.parameters.bitwise);
    EXPECT_EQ(worse.compared, 3);
  }
  EXPECT_TRUE(std::isnan(worse_of(report(NAN, 0), report(5, 0)).gradients.norm_rel));
  EXPECT_TRUE(std::isnan(worse_of(report(5, 0), report(NAN, 0)).gradients.norm_rel));
  VerifyReport other_zero = report(0, 0);  // -0 for 0
  other_zero.parameters.bitwise = false;
  EXPECT_FALSE(worse_of(report(0, 0), other_zero).parameters.bitwise);
  EXPECT_FALSE(worse_of(other_zero, report(0, 0)).parameters.bitwise);
}

TEST(Verify, AMissingOrDoubledArrayIsABug) {
  const Array a = {1};
  const ParameterView x{"x", a, a}, y{"y", a, a};
  const std::vector<ParameterView> both = {x, y}, one = {x}, doubled = {x, x},
                                   other = {x, {"z", a, a}};
  EXPECT_THROW(verify(one, both), Bug);
  EXPECT_THROW(verify(doubled, both), Bug);
  EXPECT_THROW(verify(other, both), Bug);
}

}  // namespace verify_test
}  // namespace pipewright::exec
