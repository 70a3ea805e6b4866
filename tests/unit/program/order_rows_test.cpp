// One row of a CSV that is to blame: the complaint names it and says what to do.
#include "core/order/rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/order/problems.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright {
namespace order_rows_test {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> rows_of(const char* schedule, int ranks, int micro_batches, int chunks) {
  const std::string text = write_order_csv(planner::make_order(
      schedule, {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks}));
  std::vector<std::string> rows;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    rows.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return rows;
}

/// The sentence about the rows; "" if there is none.
std::string fault_of(const std::vector<std::string>& rows) {
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  const Order order = read_order_csv(text, "a.csv");
  EXPECT_FALSE(problems_of(order).empty()) << text;
  return row_fault(order, split_csv(text, "a.csv").rows, "a.csv").value_or("");
}

TEST(OrderRows, CountTheLinesOfTheFile) {
  const auto rows = split_csv("\n0F0,0B0\r\n , ,\n1F0,1B0", "a.csv").rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].number, 2);
  EXPECT_EQ(rows[1].number, 4);
  EXPECT_EQ(read_order_csv("\n0F0,0B0\r\n , ,\n1F0,1B0", "a.csv").rank_count(), 2);
}

TEST(OrderRows, OneTooMany) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    auto rows = rows_of(schedule, 4, 8, 1);
    rows.push_back(rows[3]);
    EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 5: all of its ")) << schedule;
    EXPECT_THAT(fault_of(rows), HasSubstr("stand in row 4 already")) << schedule;
    // Copied into the middle, with an empty line above it.
    rows = rows_of(schedule, 4, 8, 1);
    rows.insert(rows.begin() + 2, {"", rows[1]});
    EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 4: all of its ")) << schedule;
    // And changed a little.
    rows = rows_of(schedule, 4, 8, 1);
    rows.push_back(rows[3].substr(0, rows[3].rfind(',')));
    EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 5: ")) << schedule;
  }
}

TEST(OrderRows, OneThatWasCutOff) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    auto rows = rows_of(schedule, 4, 8, schedule == std::string_view("interleaved") ? 2 : 1);
    for (int k = 0; k < 5; ++k) rows[2].erase(rows[2].rfind(','));
    EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 3: ")) << schedule;
    EXPECT_THAT(fault_of(rows), HasSubstr("are missing, the first is 2")) << schedule;
    EXPECT_THAT(fault_of(rows), HasSubstr("--fragment")) << schedule;
  }
}

TEST(OrderRows, SaysHowManyMicroBatchesLackSomethingAndWhatComesFirst) {
  // 3F0,3B0,…,3F7,3B7 without its last five: B5, F6, B6, F7, B7.
  auto rows = rows_of("1f1b", 4, 8, 1);
  for (int k = 0; k < 5; ++k) rows[3].erase(rows[3].rfind(','));
  EXPECT_THAT(fault_of(rows),
              StartsWith("a.csv, row 4: actions of 3 micro-batches are missing, the first is 3B5 "
                         "(the row has 11 computations)"));
}

TEST(OrderRows, AllThatWereCutOff) {
  auto rows = rows_of("1f1b", 4, 8, 1);
  for (std::string& row : rows) row.resize(row.find(",", 18));
  EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 1: "));
  EXPECT_THAT(fault_of(rows), HasSubstr("3 other rows lack actions too"));
}

TEST(OrderRows, OneThatIsMissing) {
  auto rows = rows_of("1f1b", 4, 8, 1);
  rows.erase(rows.begin() + 1);
  EXPECT_THAT(fault_of(rows), StartsWith("a.csv: no row computes stage 1"));
}

TEST(OrderRows, OneThatWasBrokenInTwo) {
  auto rows = rows_of("1f1b", 4, 8, 1);
  const std::size_t middle = rows[1].find(',', rows[1].size() / 2 + 8);
  const std::string rest = rows[1].substr(middle + 1);
  rows[1].resize(middle);
  rows.insert(rows.begin() + 2, rest);
  EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 3: all of its "));
  EXPECT_THAT(fault_of(rows), HasSubstr("stage 1, which row 2 computes"));
}

TEST(OrderRows, OneWithAMistypedNumber) {
  auto rows = rows_of("1f1b", 4, 8, 1);
  rows[2].replace(rows[2].find("2B7"), 3, "2B70");
  EXPECT_THAT(fault_of(rows), StartsWith("a.csv, row 3: it alone names micro-batch 70"));
  EXPECT_THAT(fault_of(rows), HasSubstr("2B70"));
  rows = rows_of("1f1b", 4, 8, 1);
  rows[2].replace(rows[2].find("2B3"), 3, "20B3");
  EXPECT_THAT(fault_of(rows), HasSubstr("no row computes the stages 4 to 19"));
  EXPECT_THAT(fault_of(rows), HasSubstr("row 3, cell "));
}

TEST(OrderRows, SingleActionsKeepTheirOwnSentences) {
  auto rows = rows_of("1f1b", 4, 8, 1);
  rows[1].erase(rows[1].find("1B3,"), 4);
  EXPECT_EQ(fault_of(rows), "");
  rows = rows_of("1f1b", 4, 8, 1);
  rows[1].insert(rows[1].find("1B3,"), "0F0,");
  EXPECT_EQ(fault_of(rows), "");
}

}  // namespace order_rows_test
}  // namespace pipewright
