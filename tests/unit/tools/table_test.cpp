// Tables on terminals of every width: no column and no word is lost.
#include "tools/cli/table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pipewright::tools {
namespace table_test {

using Align = Table::Align;

Terminal terminal(int width) { return {.width = width, .cuts_rows = true}; }

Table schedules() {
  Table table({{"schedule"},
               {"step", Align::Right},
               {"bubble", Align::Right},
               {"memory", Align::Right},
               {"verdict"}});
  table.add({"interleaved-zb", "33.0 ms", "27.3 %", "8.00 GiB", "over memory"});
  table.add({"gpipe", "9.00 ms", "1.0 %", "512 MiB", "ok"});
  return table;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    most = std::max(most, columns_of(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return most;
}

/// Without spaces and line ends.
std::string letters(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ' && c != '\n') result += c;
  }
  return result;
}

TEST(Tables, HaveWideGapsWhereThereIsRoomAndNarrowOnesWhereThatFits) {
  EXPECT_EQ(schedules().text(terminal(80)),
            "schedule           step  bubble    memory  verdict\n"
            "interleaved-zb  33.0 ms  27.3 %  8.00 GiB  over memory\n"
            "gpipe           9.00 ms   1.0 %   512 MiB  ok\n");
  EXPECT_EQ(schedules().text(terminal(50)),
            "schedule          step bubble   memory verdict\n"
            "interleaved-zb 33.0 ms 27.3 % 8.00 GiB over memory\n"
            "gpipe          9.00 ms  1.0 %  512 MiB ok\n");
}

TEST(Tables, GoOnInALineOfTheirOwnWhereARowIsTooWide) {
  EXPECT_EQ(schedules().text(terminal(40)),
            "schedule           step  bubble\n"
            "      memory  verdict\n"
            "interleaved-zb  33.0 ms  27.3 %\n"
            "    8.00 GiB  over memory\n"
            "gpipe           9.00 ms   1.0 %\n"
            "     512 MiB  ok\n");
}

TEST(Tables, BreakALastColumnOfWordsWithinItself) {
  Table table({{"#", Align::Right}, {"step", Align::Right}, {"configuration"}});
  table.add({"1", "33.0 ms", "tp 8, pp 4, dp 2, micro-batches of 4, ZeRO 1"});
  EXPECT_EQ(table.text(terminal(42)),
            "#     step  configuration\n"
            "1  33.0 ms  tp 8, pp 4, dp 2,\n"
            "            micro-batches of 4, ZeRO 1\n");
}

TEST(Tables, LoseNothingAtAnyWidth) {
  Table table({{"a", Align::Right}, {"name"}, {"b", Align::Right}, {"long words"}, {"layers"}});
  table.add({"1", "übergroß", "12345", "full on 0-2, none on 3", "4+4+4+4+4+4+4+4+4+4+4+4+4+4+4"});
  table.add({"22", "x", "", "", "averyveryveryveryveryveryveryveryverylongwordwithoutanyspace"});
  // Whole: what a pipe gets.
  const std::string whole = table.text({.width = 20, .cuts_rows = false});
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 3);
  for (int width = 40; width <= 200; ++width) {
    const std::string text = table.text(terminal(width));
    EXPECT_LE(widest(text), static_cast<std::size_t>(width)) << text;
    std::string found = letters(text), expected = letters(whole);
    // Words broken within their column stand between those of others.
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected) << width << "\n" << text;
    EXPECT_EQ(text.find(".."), text.npos) << text;
  }
}

TEST(Tables, PaintEachLineByItself) {
  Terminal narrow = terminal(40);
  narrow.color = true;
  const std::string text = schedules().text(narrow);
  std::size_t begun = 0, ended = 0, lines = 0;
  for (std::size_t at = 0; (at = text.find("\x1b[1m", at)) != text.npos; ++at) ++begun;
  for (std::size_t at = 0; (at = text.find("\x1b[0m\n", at)) != text.npos; ++at) ++ended;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(begun, 2U);  // the titles take two lines; rows are plain
  EXPECT_EQ(ended, begun);
  EXPECT_EQ(lines, 6U);
}

}  // namespace table_test
}  // namespace pipewright::tools
