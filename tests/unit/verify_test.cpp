// The comparison of two runs, on arrays whose difference is known by hand.
#include "exec/verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace pipewright::exec {
namespace {

using cpu::ParameterView;
using Array = std::vector<float>;

TEST(UlpDistance, CountsTheNumbersBetween) {
  const float next = std::nextafter(1.0F, 2.0F);
  EXPECT_EQ(ulp_distance(1.0F, 1.0F), 0);
  EXPECT_EQ(ulp_distance(1.0F, next), 1);
  EXPECT_EQ(ulp_distance(next, 1.0F), 1);
  EXPECT_EQ(ulp_distance(0.0F, -0.0F), 0);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ulp_distance(tiny, -tiny), 2);
  EXPECT_EQ(ulp_distance(1.0F, 2.0F), 1 << 23);  // one binade
  EXPECT_EQ(ulp_distance(1.0F, NAN), std::numeric_limits<std::int64_t>::max());
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

TEST(Verify, AMissingOrDoubledArrayIsABug) {
  const Array a = {1};
  const ParameterView x{"x", a, a}, y{"y", a, a};
  const std::vector<ParameterView> both = {x, y}, one = {x}, doubled = {x, x},
                                   other = {x, {"z", a, a}};
  EXPECT_THROW(verify(one, both), Bug);
  EXPECT_THROW(verify(doubled, both), Bug);
  EXPECT_THROW(verify(other, both), Bug);
}

}  // namespace
}  // namespace pipewright::exec
