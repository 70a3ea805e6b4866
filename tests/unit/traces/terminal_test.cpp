// The timeline as text and as a picture.
#include "traces/pictures/terminal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/traced.hpp"
#include "traces/pictures/svg.hpp"

namespace pipewright::traces {
namespace terminal_test {

using ::testing::HasSubstr;
using ::testing::Not;

TraceTimeline timeline(const test::Traced& t) { return trace_timeline(t.program, t.timeline); }

std::vector<std::string> rows(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(stream, line);) found.push_back(line);
  return found;
}

/// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::size_t characters(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

TEST(Terminal, OneForwardOneBackwardToTheUnit) {
  // 1F1B, p 4, m 8, F 1, B 2: 33 units, one column each, bubble 9 of 33.
  const auto t = test::traced_schedule("1f1b", 4, 8, 1, "ideal", "F=1ms,B=2ms");
  EXPECT_EQ(terminal_timeline(timeline(t)),
            "rank 0 |0123......0─41─52─63─74─.5─.6─.7─| busy 72.7%  in flight 4\n"
            "rank 1 |.012....0─31─42─53─64─75─.6─.7─..| busy 72.7%  in flight 3\n"
            "rank 2 |..01..0─21─32─43─54─65─76─.7─....| busy 72.7%  in flight 2\n"
            "rank 3 |...00─11─22─33─44─55─66─77─......| busy 72.7%  in flight 1\n"
            "        0                         33.0 ms\n"
            "        0 0═ = F  b 0─ = B  . = bubble  digit: micro-batch  capital: several\n");
}

TEST(Terminal, EachKindCanBeToldWithoutColour) {
  // 2 columns a unit: F, I and W of two columns differ by their fill.
  const auto t = test::traced_schedule("zb-h1", 2, 3, 1, "ideal", "F=1,I=1,W=1");
  const std::string text = terminal_timeline(timeline(t), {.width = 80, .ascii = true});
  EXPECT_THAT(text, HasSubstr("0="));
  EXPECT_THAT(text, HasSubstr("0~"));
  EXPECT_THAT(text, HasSubstr("0#"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  for (const char c : text) EXPECT_LT(static_cast<unsigned char>(c), 0x80U);
}

TEST(Terminal, ColourChangesNothingButColour) {
  const auto t = test::traced_schedule("interleaved", 4, 8, 2, "torch", "F=3,B=4,comm=1");
  const std::string plain = terminal_timeline(timeline(t));
  const std::string colored = terminal_timeline(timeline(t), {.color = true});
  EXPECT_THAT(colored, HasSubstr("\x1b[0;34m"));
  std::string stripped;
  for (std::size_t i = 0; i < colored.size(); ++i) {
    if (colored[i] == '\x1b') {
      i = colored.find('m', i);
    } else {
      stripped += colored[i];
    }
  }
  EXPECT_EQ(stripped, plain);
}

TEST(Terminal, KeepsTheWidthWithManyRanksAndActions) {
  const auto t = test::traced_schedule("1f1b", 64, 300, 1, "torch", "F=7,B=13,comm=2");
  for (const int width : {40, 59, 60, 80, 132}) {
    const auto lines = rows(terminal_timeline(timeline(t), {.width = width}));
    ASSERT_GE(lines.size(), 66U);
    for (const std::string& line : lines) {
      EXPECT_LE(characters(line), static_cast<std::size_t>(width)) << line;
    }
  }
  EXPECT_THAT(terminal_timeline(timeline(t)), HasSubstr("BBBBBBBB"));
}

TEST(Terminal, ShowsTransfersThatHoldTheLaneAndWhatIsStuck) {
  const auto held = test::traced_csv("0F0,0SEND_F0,0F1\n1RECV_F0,1F0\n",
                                     comm_policy_preset("nccl-one-stream"), "F=1,B=1,comm=1", true);
  EXPECT_THAT(terminal_timeline(timeline(held)), HasSubstr(": = transfer"));
  const auto stuck = test::traced_csv("0F0,0RECV_B0,0B0\n1F1,1F2\n", {.issue = Issue::Inline},
                                      "F=10000,B=1", true);
  const std::string text = terminal_timeline(timeline(stuck));
  EXPECT_THAT(text, HasSubstr("!!"));
  EXPECT_THAT(text, HasSubstr("! = stuck"));
}

TEST(Terminal, ATimelineWithoutTimeIsNoTrouble) {
  const auto t = test::traced_csv("0F0,0B0\n1F0,1B0\n", comm_policy_preset("ideal"), "F=0,B=0");
  EXPECT_THAT(terminal_timeline(timeline(t)), HasSubstr("rank 1 || busy 0.0%"));
  EXPECT_THAT(svg_timeline(timeline(t)), HasSubstr("</svg>"));
}

TEST(Svg, DrawsEachActionWithItsNameAndHatchesBubbles) {
  const auto t = test::traced_schedule("1f1b", 4, 8, 1, "ideal", "F=1ms,B=2ms");
  const std::string svg = svg_timeline(timeline(t), {.title = "1F1B <p=4>"});
  EXPECT_THAT(svg, HasSubstr("1F1B &lt;p=4&gt;"));
  EXPECT_THAT(svg, HasSubstr("<title>3B7, 2.00 ms</title>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"url(#bubble)\""));
  EXPECT_THAT(svg, HasSubstr("busy 72.7%, in flight 4"));
  EXPECT_THAT(svg, HasSubstr("F forward"));
  std::size_t titles = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos;
       at = svg.find("<title>", at + 1))
    ++titles;
  EXPECT_EQ(titles, 64U);
}

TEST(Svg, StaysSmallWithManyActions) {
  // 38,400 actions on 64 ranks: narrow neighbours of one kind share a rectangle.
  const auto t = test::traced_schedule("gpipe", 64, 300, 1, "ideal", "F=1,B=2");
  EXPECT_LT(svg_timeline(timeline(t)).size(), 4'000'000U);
}

}  // namespace terminal_test
}  // namespace pipewright::traces
