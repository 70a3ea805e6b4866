// The page of --html: whole, self-contained, and nothing in it is taken for markup or script.
#include "traces/page/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/occurrences.hpp"

namespace pipewright::traces {
namespace page_test {

using test::occurrences;
using testing::HasSubstr;
using testing::Not;

TEST(Page, HoldsWhatItWasGivenInOrder) {
  const PageText text{.title = "1f1b",
                      .headline = "step 3 ms",
                      .facts = {"costs: F=1"},
                      .verdict = "DEADLOCK\n  rank 0",
                      .tables = {{"Ranks", {"rank", "busy"}, {{"0", "2 ms"}}}}};
  const std::string page = html_page(text, {{.facts = {{"ranks", 1}}, .columns = "eJwDAAAAAAE="}});
  std::size_t at = 0;
  for (const char* part :
       {"<h1>1f1b</h1>", "<p class=\"main\">step 3 ms</p>", "<p>costs: F=1</p>",
        "<pre>DEADLOCK\n  rank 0</pre>", "<canvas", "<h2>Ranks</h2>", "<th>busy</th>",
        "<td>2 ms</td>", "{\"timelines\":[{\"ranks\":1}],\"one_of_them\":false}",
        "eJwDAAAAAAE=", "</html>"}) {
    const std::size_t found = page.find(part, at);
    ASSERT_NE(found, std::string::npos) << part;
    at = found;
  }
}

TEST(Page, SaysWhatWasCheckedDrawsLossesAndNamesWhatRowsStandFor) {
  PageText text{.title = "run"};
  text.notes.checks = {{"the gradients agree", true}, {"a rank needs <more>", false}};
  text.notes.charts = {{.title = "loss", .unit_of_x = "step", .values = {2, 1}}};
  text.tables = {{"Ranked", {"#"}, {{"1"}, {"base"}, {"2"}}, {0, -1}}};
  text.one_of_them = true;
  const std::string page = html_page(text, {});
  for (const char* part :
       {"<p class=\"passed\">✓ the gradients agree</p>",
        "<p class=\"failed\">✗ a rank needs &lt;more&gt;</p>", "<figcaption>loss</figcaption>",
        "<tr data-timeline=\"0\"><td>1</td></tr>", "<tr><td>base</td></tr>", "<tr><td>2</td></tr>",
        "{\"timelines\":[],\"one_of_them\":true}"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(Page, AsksForNothingOutsideItself) {
  const std::string page = html_page({.title = "1f1b"}, {});
  // The browser is told to let nothing in, and there is nothing that would ask.
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* way : {"http:", "https:", " src=", " href=", "@import", "url(", "fetch(",
                          "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import("})
    EXPECT_THAT(page, Not(HasSubstr(way)));
}

TEST(Page, NamesAreTextAndNotMarkup) {
  const std::string page =
      html_page({.title = "<b>a&b</b> {{script}}", .facts = {"\"x\" 'y' \x01"}}, {});
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;a&amp;b&lt;/b&gt; {{script}}"));
  EXPECT_THAT(page, HasSubstr("&quot;x&quot; &#39;y&#39; ?"));
}

TEST(Page, NoDataEndsItsScriptElement) {
  const std::string evil = "</script><script>alert(1)</script><!--";
  const std::string plain = html_page({.title = "t"}, {{.facts = {{"name", "x"}}, .columns = ""}});
  const std::string page =
      html_page({.title = evil, .headline = evil, .facts = {evil}, .verdict = evil},
                {{.facts = {{"name", evil}, {evil, "\xff"}}, .columns = ""}});
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)\\u003c/script>\\u003c!--"));
  for (const char* part : {"<script", "</script", "<!--"})
    EXPECT_EQ(occurrences(page, part), occurrences(plain, part)) << part;
}

}  // namespace page_test
}  // namespace pipewright::traces
