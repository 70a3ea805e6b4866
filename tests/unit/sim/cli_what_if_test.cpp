// --what-if and --suppose of simulate, analyze and report: what they print, that a user can check
// it, what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_what_if_test {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kHeavyLast =
    "-s 1f1b -p 4 -m 8 --cost F=1000:1000:1000:2000,B=2000,comm=100 ";

json result_of(const std::string& words, const Folder& folder) {
  const auto result = pipewright(words + " --json", folder);
  EXPECT_EQ(result.status, 0) << words << "\n" << result.err;
  return json::parse(result.out);
}

std::string complaint_of(const std::string& words, const Folder& folder) {
  const auto result = pipewright(words, folder);
  EXPECT_EQ(result.status, 2) << words;
  return result.err;
}

TEST(WhatIfFlag, ListsByGainWhatCanBeAskedForByName) {
  const Folder folder;
  const json r = result_of(std::string("simulate --what-if ") + kHeavyLast, folder);
  const json& rows = r.at("what_if");
  ASSERT_GT(rows.size(), 8U);
  json gain = rows[0].at("gain_ns");
  std::string suppose;
  for (const json& row : rows) {
    EXPECT_LE(row.at("gain_ns"), gain);
    gain = row.at("gain_ns");
    EXPECT_EQ(r.at("makespan_ns").get<std::int64_t>() - row.at("gain_ns").get<std::int64_t>(),
              row.at("makespan_ns"));
    suppose += " --suppose '" + row.at("change").get<std::string>() + "'";
  }
  EXPECT_EQ(result_of("simulate " + std::string(kHeavyLast) + suppose, folder).at("what_if"), rows);
  // The cause is there on purpose.
  EXPECT_THAT(pipewright(std::string("simulate --what-if ") + kHeavyLast, folder).out,
              HasSubstr("stages balanced"));
}

TEST(WhatIfFlag, IsTheStepOfTheCommandWithOtherCosts) {
  const Folder folder;
  const std::string order = "simulate -s interleaved-1f1b -p 4 --vpp 2 -m 8 ";
  const json supposed =
      result_of(order + "--cost F=1000,B=2001,comm=301 --suppose F=0.5,B=0.9,messages=0.5", folder);
  const json changed = result_of(order + "--cost F=500,B=1801,comm=151", folder);
  EXPECT_EQ(supposed.at("what_if")[0].at("makespan_ns"), changed.at("makespan_ns"));
  EXPECT_EQ(supposed.at("what_if")[0].at("change"), "F=0.5,B=0.9,messages=0.5");
}

TEST(WhatIfFlag, OfATraceIsThatOfItsReplay) {
  const Folder folder;
  ASSERT_EQ(pipewright(std::string("simulate --trace t.json -q ") + kHeavyLast, folder).status, 0);
  const json r = result_of(
      "analyze t.json --what-if --suppose stages=mean -o order.csv --costs-out costs.csv", folder);
  const std::int64_t replayed = r.at("costs").at("replayed_step_ns");
  for (const json& row : r.at("what_if")) {
    EXPECT_EQ(row.at("makespan_ns").get<std::int64_t>() + row.at("gain_ns").get<std::int64_t>(),
              replayed);
  }
  const json again = result_of(
      "simulate order.csv --costs costs.csv --suppose stages=mean --cost "
      "comm=" +
          r.at("costs").at("latency_ns").dump(),
      folder);
  EXPECT_EQ(again.at("what_if")[0], r.at("what_if")[0]);
  EXPECT_THAT(pipewright("analyze t.json --suppose stages=mean", folder).out,
              HasSubstr("from the trace"));
}

TEST(WhatIfFlag, GivesThePageItsTable) {
  const Folder folder;
  ASSERT_EQ(pipewright(std::string("report -o a.html ") + kHeavyLast, folder).status, 0);
  ASSERT_EQ(pipewright(std::string("report --suppose rank:3=0.123 -o b.html ") + kHeavyLast, folder)
                .status,
            0);
  const auto text_of = [&](const char* name) {
    std::ifstream file(folder.path() / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_THAT(text_of("a.html"), HasSubstr("stages balanced"));
  EXPECT_THAT(text_of("b.html"), HasSubstr("rank 3: 87.7 % faster"));
}

TEST(WhatIfFlag, RefusesByTheNameOfThePlace) {
  const Folder folder;
  const std::string simulate = std::string("simulate ") + kHeavyLast;
  EXPECT_THAT(complaint_of(simulate + "--suppose F=0.9,rank:9=0.9", folder),
              HasSubstr("--suppose \"rank:9=0.9\": there is no rank 9; they are 0 to 3"));
  EXPECT_THAT(complaint_of(simulate + "--suppose F", folder),
              HasSubstr("--suppose \"F\": expected TARGET=FACTOR"));
  EXPECT_THAT(complaint_of("simulate -s 1f1b -p 64 -m 1000000000 --what-if", folder),
              HasSubstr("--what-if needs each of"));
  ASSERT_EQ(pipewright(simulate + "--trace t.json -q", folder).status, 0);
  EXPECT_THAT(complaint_of("report t.json t.json -o two.html --what-if", folder),
              HasSubstr("--what-if belongs to a report of one step"));
  folder.write("rank0.json",
               R"({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [)"
               R"({"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "pid": 7, "tid": 1, )"
               R"("ts": 1000, "dur": 100}]})");
  EXPECT_THAT(complaint_of("analyze rank0.json --what-if", folder),
              HasSubstr("a what-if needs the traces of all ranks; these are 1 of 2"));
  EXPECT_EQ(pipewright("analyze rank0.json --html page.html", folder).status, 0);
}

}  // namespace cli_what_if_test
}  // namespace pipewright::test
