// The command on terminals of 80 and of 40 columns: what is cut, and what comes last.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/terminal_runner.hpp"

namespace pipewright::test {
namespace cli_terminal_test {

class OnTerminal : public testing::TestWithParam<int> {};

TEST_P(OnTerminal, CompareKeepsItsVerdictsAndEveryColumn) {
  const Folder folder;
  const auto shown = on_terminal(
      "compare gpipe interleaved-zb zb-h1 -p 4 -m 8 --mem F=1GiB,limit=7GiB", folder, GetParam());
  EXPECT_EQ(shown.status, 1) << shown.text();
  for (const char* title : {"vpp", "step", "to 1st", "bubble", "live", "weights", "memory",
                            "verdict", "over memory", "ok"}) {
    EXPECT_LT(shown.line_with(title), shown.lines.size()) << title << "\n" << shown.text();
  }
  for (const std::string& line : shown.lines) {
    EXPECT_LE(columns_of_line(line), static_cast<std::size_t>(GetParam())) << line;
    EXPECT_EQ(line.find(".."), line.npos) << line;
  }
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_P(OnTerminal, TuneAndEstimateShowTheirLastColumns) {
  const Folder folder;
  const bool wide = GetParam() >= 80;
  // Rows with all that a table of tune can hold, where there is time for it.
  folder.write("job.json", contents(std::string(PIPEWRIGHT_SOURCE_DIR "/examples/") +
                                    (wide ? "gpt3-175b-64.json" : "job.json")));
  const auto tuned = on_terminal("tune job.json --no-synthesis", folder, GetParam());
  EXPECT_LT(tuned.line_with("layers"), tuned.lines.size()) << tuned.text();
  const auto estimated =
      on_terminal("estimate gpt3-175b --devices 1024 --global-batch 1536", folder, GetParam());
  EXPECT_LT(estimated.line_with("configuration"), estimated.lines.size()) << estimated.text();
  for (const auto& shown : {estimated, tuned}) {
    EXPECT_EQ(shown.status, 0) << shown.text();
    for (const std::string& line : shown.lines) {
      EXPECT_FALSE(line.ends_with("..")) << line;
      EXPECT_LE(columns_of_line(line), 80U) << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, OnTerminal, testing::Values(80, 40));

TEST(Hints, ComeAfterTheResult) {
  const Folder folder;
  for (const char* words : {"simulate -s 1f1b -p 2 -m 2", "schedules list", "schedules show zb-h1",
                            "tune " PIPEWRIGHT_SOURCE_DIR "/examples/job.json"}) {
    const auto shown = on_terminal(words, folder, 80);
    EXPECT_EQ(shown.status, 0) << shown.text();
    ASSERT_GT(shown.lines.size(), 2U) << words;
    EXPECT_EQ(shown.line_with("next: "), shown.lines.size() - 1) << shown.text();
  }
}

TEST(Hints, OfAnAnswerThatIsNoStandBelowTheAnswerToo) {
  const Folder folder;
  const auto shown = on_terminal("simulate -s gpipe -p 2 -m 4 --mem F=10,limit=39", folder, 80);
  EXPECT_EQ(shown.status, 1);
  EXPECT_LT(shown.line_with("peak memory"), shown.line_with("over the limit")) << shown.text();
}

}  // namespace cli_terminal_test
}  // namespace pipewright::test
