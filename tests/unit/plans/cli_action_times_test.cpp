// --costs with the schedule auto: the order is searched for these times, and what makes no sense is
// refused with its row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_action_times_test {

using nlohmann::json;
using testing::HasSubstr;

/// Six micro-batches of unequal length on three ranks; `replica` has them the other way round where
/// that is 1.
std::string times(const std::string& backward, int replicas = 1) {
  std::string text = "replica,rank,action,ns\n";
  const int lengths[] = {5, 1, 1, 4, 2, 1};
  for (int d = 0; d < replicas; ++d) {
    for (int r = 0; r < 3; ++r) {
      for (int k = 0; k < 6; ++k) {
        const int length = lengths[d == 0 ? k : 5 - k];
        for (const char kind : "F" + backward) {
          const int each = length * (kind == 'B' ? 200 : 100);
          text += std::to_string(d) + "," + std::to_string(r) + "," + std::to_string(r) + kind +
                  std::to_string(k) + "," + std::to_string(each) + "\n";
        }
      }
    }
  }
  return text;
}

json simulated(const std::string& words, const Folder& folder) {
  const auto result = pipewright("simulate -p 3 -m 6 --costs times.csv --json " + words, folder);
  EXPECT_EQ(result.status, 0) << words << "\n" << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(ActionTimesOfAuto, TheStepIsTheOneThatWasSearchedAndNoNamedScheduleIsShorter) {
  const Folder folder;
  for (const int replicas : {1, 2}) {
    const std::string dp = " --dp " + std::to_string(replicas);
    folder.write("times.csv", times("B", replicas));
    const json found = simulated("-s auto" + dp, folder);
    EXPECT_EQ(found.at("makespan_ns"), found.at("synthesis").at("value_ns"));
    EXPECT_LE(found.at("synthesis").at("lower_bound_ns"), found.at("makespan_ns"));
    for (const char* schedule : {"1f1b", "gpipe", "eager-1f1b"})
      EXPECT_LT(found.at("makespan_ns"),
                simulated("-s " + std::string(schedule) + dp, folder).at("makespan_ns"))
          << schedule;
  }
}

TEST(ActionTimesOfAuto, TheKindOfBackwardIsThatOfTheRows) {
  const Folder folder;
  folder.write("times.csv", times("IW"));
  const json found = simulated("-s auto --emit-order", folder);
  EXPECT_EQ(found.at("makespan_ns"), found.at("synthesis").at("value_ns"));
  EXPECT_THAT(found.at("order").dump(), HasSubstr("0I0"));
  EXPECT_THAT(found.at("order").dump(), testing::Not(HasSubstr("0B0")));
  EXPECT_LE(found.at("makespan_ns"), simulated("-s zb-h1", folder).at("makespan_ns"));
}

std::string refused(const std::string& words, const Folder& folder) {
  const auto result = pipewright("simulate -p 3 -m 6 --costs times.csv " + words, folder);
  EXPECT_EQ(result.status, 2) << words;
  return result.err;
}

TEST(ActionTimesOfAuto, WhatMakesNoSenseIsRefused) {
  const Folder folder;
  folder.write("times.csv", times("IW"));
  EXPECT_THAT(refused("-s auto --rank-cost F=1ms", folder), HasSubstr("--vpp 1"));
  EXPECT_THAT(refused("-s auto --prove", folder), HasSubstr("--prove"));
  EXPECT_THAT(refused("-s auto --param backward=fused", folder),
              HasSubstr("times.csv: line 3: rank 0 has no action 0I0"));
  folder.write("times.csv", "replica,rank,action,ns\n0,1,1F2,5\n0,1,0F2,5\n");
  EXPECT_THAT(refused("-s auto", folder), HasSubstr("times.csv: line 3: rank 1 has no action 0F2"));
}

}  // namespace cli_action_times_test
}  // namespace pipewright::test
