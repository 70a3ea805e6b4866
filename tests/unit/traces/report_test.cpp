// The page of --html: whole, self-contained, and nothing in it is taken for markup.
#include "traces/pictures/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipewright::traces {
namespace report_test {

using testing::HasSubstr;
using testing::Not;

TEST(Report, HoldsWhatItWasGivenInOrder) {
  const Report report{.title = "1f1b",
                      .facts = {"step 3 ms"},
                      .verdict = "DEADLOCK\n  rank 0",
                      .svg = "<svg></svg>",
                      .tables = {{"Ranks", {"rank", "busy"}, {{"0", "2 ms"}}}}};
  const std::string page = html_report(report);
  std::size_t at = 0;
  for (const char* part : {"<h1>1f1b</h1>", "<p>step 3 ms</p>", "DEADLOCK\n  rank 0", "<svg></svg>",
                           "<h2>Ranks</h2>", "<th>busy</th>", "<td>2 ms</td>", "</html>"}) {
    const std::size_t found = page.find(part, at);
    ASSERT_NE(found, std::string::npos) << part;
    at = found;
  }
  EXPECT_THAT(page, Not(HasSubstr("http")));  // no network
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(Report, NamesAreTextAndNotMarkup) {
  const std::string page = html_report({.title = "<b>a&b</b>", .facts = {"\"x\" 'y' \x01"}});
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;a&amp;b&lt;/b&gt;"));
  EXPECT_THAT(page, HasSubstr("&quot;x&quot; &#39;y&#39; ?"));
}

}  // namespace report_test
}  // namespace pipewright::traces
