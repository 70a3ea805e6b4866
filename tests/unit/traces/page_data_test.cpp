// The columns of the page, read back, and that they stay small.
#include "traces/page/page_data.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>

#include "tests/support/traced.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/page/columns.hpp"
#include "traces/page/page_rows.hpp"

namespace pipewright::traces {
namespace page_data_test {

using Numbers = std::vector<std::int64_t>;

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(digits.find(c));
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 0xFF);
  }
  return bytes;
}

std::map<std::string, Numbers> columns_of(const Json& directory, const std::string& packed) {
  std::size_t size = 0;
  for (const Json& column : directory) size += column.at("bytes").get<std::size_t>();
  const std::string bytes = from_base64(packed);
  std::string raw(size + 1, '\0');
  uLongf got = raw.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(raw.data()), &got,
                       reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()),
            Z_OK);
  EXPECT_EQ(got, size);
  std::map<std::string, Numbers> columns;
  std::size_t at = 0;
  for (const Json& column : directory) {
    Numbers& values = columns[column.at("name")];
    std::int64_t last = 0;
    for (std::size_t i = 0; i < column.at("count").get<std::size_t>(); ++i) {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(raw[at++]);
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) break;
      }
      const std::int64_t number =
          static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
      last = column.at("difference").get<bool>() ? last + number : number;
      values.push_back(last);
    }
  }
  return columns;
}

TEST(PageColumns, NumbersOfAnySizeComeBack) {
  const Numbers values = {
      0, -1, 1, 63, 64, -64, -65, 1'000'000'000'000, INT64_MAX / 2, INT64_MIN / 2};
  Columns columns;
  columns.add("plain", values);
  columns.add("difference", values, Coding::Difference);
  columns.add("none", {});
  const auto back = columns_of(columns.directory(), columns.packed());
  EXPECT_EQ(back.at("plain"), values);
  EXPECT_EQ(back.at("difference"), values);
  EXPECT_TRUE(back.at("none").empty());
}

TEST(PageColumns, Base64IsThatOfTheRfc) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(PageData, HoldsTheTimelineItsCausesAndItsPath) {
  const auto t = test::traced_schedule("zb-h1", 4, 8, 1, "ideal", "F=10,I=12,W=8,comm=1");
  const PageData data = page_data(t.program, t.timeline, t.costs);
  const auto columns = columns_of(data.facts.at("columns"), data.columns);
  EXPECT_EQ(data.facts.at("ranks"), 4);
  EXPECT_EQ(data.facts.at("makespan_ns"), t.timeline.makespan_ns);

  std::int64_t busy = 0;
  for (const std::int64_t ns : columns.at("action.length")) busy += ns;
  EXPECT_EQ(columns.at("action.length").size(), 4U * 8 * 3);
  EXPECT_EQ(busy, 4 * 8 * 30);
  const BubbleReport bubbles = explain_bubbles(t.program, t.timeline);
  Numbers by_cause(kBubbleCauses, 0);
  for (std::size_t i = 0; i < columns.at("bubble.length").size(); ++i)
    by_cause[static_cast<std::size_t>(columns.at("bubble.cause")[i])] +=
        columns.at("bubble.length")[i];
  for (int c = 0; c < kBubbleCauses; ++c)
    EXPECT_EQ(by_cause[static_cast<std::size_t>(c)], bubbles.total.ns[static_cast<std::size_t>(c)]);
  // Every nanosecond of every rank is in an action or a bubble.
  EXPECT_EQ(busy + bubbles.total.sum(), 4 * t.timeline.makespan_ns);

  std::int64_t path = 0;
  for (const std::int64_t ns : columns.at("path.length")) path += ns;
  EXPECT_EQ(path, t.timeline.makespan_ns);
  // Between two ranks each micro-batch sends once forward and once back.
  EXPECT_EQ(columns.at("message.from").size(), 3U * 8 * 2);
  for (std::size_t i = 0; i < columns.at("message.from").size(); ++i) {
    EXPECT_GT(columns.at("message.producer")[i], 0);
    EXPECT_GT(columns.at("message.consumer")[i], 0);
    EXPECT_EQ(columns.at("message.length")[i], 1);
  }
}

TEST(PageData, TellsOfEachBubbleWhatItComesFromInTheEnd) {
  const auto t = test::traced_schedule("1f1b", 4, 8, 1, "ideal", "F=10,B=20,comm=1");
  const BubbleReport bubbles = explain_bubbles(t.program, t.timeline);
  const RootReport roots = root_causes(t.program, t.timeline, t.costs, bubbles);
  const PageData data =
      page_data(t.program, t.timeline, t.costs, {.bubbles = &bubbles, .roots = &roots});
  const auto columns = columns_of(data.facts.at("columns"), data.columns);
  ASSERT_EQ(columns.at("root.count").size(), columns.at("bubble.length").size());
  EXPECT_EQ(columns.at("root.length").size(), roots.spans.size());
  std::size_t span = 0;
  for (std::size_t b = 0; b < columns.at("root.count").size(); ++b) {
    std::int64_t sum = 0;
    for (std::int64_t n = 0; n < columns.at("root.count")[b]; ++n, ++span) {
      sum += columns.at("root.length")[span];
      EXPECT_EQ(columns.at("root.cause")[span], static_cast<std::int64_t>(roots.spans[span].cause));
    }
    EXPECT_EQ(sum, columns.at("bubble.length")[b]);
  }
  EXPECT_EQ(data.facts.at("root_causes").size(), static_cast<std::size_t>(kRootCauses));
  // Without them the page says nothing of roots.
  const PageData plain = page_data(t.program, t.timeline, t.costs);
  EXPECT_FALSE(columns_of(plain.facts.at("columns"), plain.columns).contains("root.count"));
}

TEST(PageData, SaysWhatIsStuckAndInWhichCycle) {
  const auto t = test::traced_csv("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
                                  CommPolicy{.issue = Issue::Inline}, "F=10,B=20");
  ASSERT_FALSE(t.finished);
  const WaitReport report = sim::check(t.program, t.costs);
  const PageData data = page_data(t.program, t.timeline, t.costs, {.stuck = &report});
  ASSERT_EQ(data.facts.at("stuck").size(), 2U);
  EXPECT_EQ(data.facts.at("stuck")[0].at("name"), "0RECV_B0");
  ASSERT_EQ(data.facts.at("cycle").size(), 2U);
  EXPECT_EQ(data.facts.at("cycle")[0].at("rank"), 0);
  EXPECT_EQ(data.facts.at("cycle")[0].at("other_rank"), 1);
  EXPECT_GT(data.facts.at("end_ns"), data.facts.at("makespan_ns"));
}

TEST(PageRows, ActionsOfTwoTimelinesMeetByRankAndNameWhateverTheirOrder) {
  const CommPolicy& ideal = comm_policy_preset("ideal");
  const auto a = test::traced_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", ideal, "F=10,B=20");
  const auto b = test::traced_csv("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", ideal, "F=10,B=20");
  const auto rows = matched_rows(a.program, a.timeline, b.program, b.timeline);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{1, 2, 4, 3, 5, 8, 6, 7}));
  // And what only one of them has meets nothing.
  const auto c = test::traced_csv("0F0,0B0\n1F0,1B0\n", ideal, "F=10,B=20");
  EXPECT_EQ(matched_rows(a.program, a.timeline, c.program, c.timeline),
            (std::vector<std::int64_t>{1, 0, 2, 0, 3, 4, 0, 0}));
}

TEST(PageData, OfAHundredThousandActionsStaysBelowThreeMillionBytes) {
  const auto t = test::traced_schedule("1f1b", 64, 1024, 1, "ideal", "F=1ms,B=2ms,comm=10us");
  const BubbleReport bubbles = explain_bubbles(t.program, t.timeline);
  const RootReport roots = root_causes(t.program, t.timeline, t.costs, bubbles);
  const PageExtras extras{.bubbles = &bubbles, .roots = &roots};
  const PageData data = page_data(t.program, t.timeline, t.costs, extras);
  EXPECT_LT(data.columns.size(), 3'000'000U);
  EXPECT_EQ(page_data(t.program, t.timeline, t.costs, extras).columns, data.columns);
}

}  // namespace page_data_test
}  // namespace pipewright::traces
