// The chart of a run's losses: each value where it belongs, spikes kept, gaps where there is none.
#include "traces/page/chart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/occurrences.hpp"

namespace pipewright::traces {
namespace chart_test {

using test::occurrences;
using testing::HasSubstr;
using testing::Not;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(Chart, PutsEachValueWhereItBelongs) {
  // 566 by 120 pixels from (64, 8) on: the greatest value at the top, the least at the foot.
  const std::string chart =
      chart_element({.title = "loss", .unit_of_x = "step", .first = 11, .values = {4, 1, 2.5}});
  EXPECT_THAT(chart, HasSubstr("<path d=\"M64.0,8.0 L347.0,128.0 L630.0,68.0\"/>"));
  EXPECT_THAT(chart, HasSubstr(">4</text>"));
  EXPECT_THAT(chart, HasSubstr(">1</text>"));
  EXPECT_THAT(chart, HasSubstr(">step 11</text>"));
  EXPECT_THAT(chart, HasSubstr(">13</text>"));
}

TEST(Chart, LeavesAGapWhereAValueIsNotFinite) {
  const std::string chart = chart_element(
      {.title = "loss", .unit_of_x = "step", .values = {1, 2, kNone, INFINITY, 2, 1, kNone, 1}});
  EXPECT_EQ(occurrences(chart, "<path"), 3U);
  EXPECT_THAT(chart, HasSubstr("M630.0,128.0 h3"));
  EXPECT_EQ(chart_element({.title = "loss", .unit_of_x = "step", .values = {kNone}}), "");
  EXPECT_EQ(chart_element({.title = "loss", .unit_of_x = "step", .values = {}}), "");
}

TEST(Chart, OfOneValueIsADashInTheMiddle) {
  const std::string chart = chart_element({.title = "loss", .unit_of_x = "step", .values = {3}});
  EXPECT_THAT(chart, HasSubstr("<path d=\"M64.0,68.0 h3\"/>"));
}

TEST(Chart, OfAMillionValuesIsSmallAndKeepsEverySpike) {
  std::vector<double> values(1'000'000, 1);
  values[123'456] = 9;
  values[123'457] = -7;
  values[999'999] = kNone;
  const std::string chart = chart_element({.title = "loss", .unit_of_x = "step", .values = values});
  EXPECT_LT(chart.size(), 30'000U);
  EXPECT_THAT(chart, HasSubstr("L133.9,8.0 L133.9,128.0"));
  EXPECT_THAT(chart, HasSubstr(">9</text>"));
  EXPECT_THAT(chart, HasSubstr(">-7</text>"));
}

TEST(Chart, ItsWordsAreTextAndNotMarkup) {
  const std::string chart = chart_element({.title = "<b>\"x\"", .unit_of_x = "<i>", .values = {1}});
  EXPECT_THAT(chart, Not(HasSubstr("<b>")));
  EXPECT_THAT(chart, Not(HasSubstr("<i>")));
}

}  // namespace chart_test
}  // namespace pipewright::traces
