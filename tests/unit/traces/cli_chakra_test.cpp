// Chakra's execution traces by the command: written by simulate, read by analyze and report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_chakra_test {

using nlohmann::json;
using testing::HasSubstr;

const std::string kStep = "simulate -s 1f1b -p 3 -m 4 --cost F=1ms,B=2ms,opt=500us ";

TEST(ChakraCommand, WhatSimulateWritesAnalyzeReads) {
  const Folder folder;
  const auto written = pipewright(kStep + "--message-bytes 1MiB --chakra et --json", folder);
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(written.err, HasSubstr("et/job.*.et; ASTRA-sim takes them"));
  const auto read = pipewright("analyze et -o order.csv --costs-out costs.csv --json", folder);
  ASSERT_EQ(read.status, 0) << read.err;
  const json step = json::parse(read.out);
  EXPECT_EQ(step.at("makespan_ns"), json::parse(written.out).at("makespan_ns"));
  EXPECT_EQ(step.at("costs").at("latency_ns"), 0);
  EXPECT_EQ(step.at("roots").at("unexplained_ns"), 0);
  const auto again = pipewright("simulate order.csv --costs costs.csv --emit-order --json", folder);
  const auto given = pipewright(kStep + "--emit-order --json", folder);
  EXPECT_EQ(json::parse(again.out).at("order"), json::parse(given.out).at("order"));
  EXPECT_EQ(json::parse(again.out).at("makespan_ns"), step.at("makespan_ns"));
}

TEST(ChakraCommand, FilesAreGivenInAnyOrderAndTwoOfOneJobAreOneStep) {
  const Folder folder;
  ASSERT_EQ(
      pipewright("simulate -s gpipe -p 2 -m 2 --cost F=1ms,B=2ms --chakra et -q", folder).status,
      0);
  const auto analyzed = pipewright("analyze et/job.1.et et/job.0.et --json", folder);
  ASSERT_EQ(analyzed.status, 0) << analyzed.err;
  const auto reported = pipewright("report et/job.1.et et/job.0.et -o page.html --json", folder);
  ASSERT_EQ(reported.status, 0) << reported.err;
  const json steps = json::parse(reported.out).at("steps");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].at("makespan_ns"), json::parse(analyzed.out).at("makespan_ns"));
  const auto two = pipewright("report et et -o page.html --json", folder);
  EXPECT_EQ(json::parse(two.out).at("steps").size(), 2U);
}

TEST(ChakraCommand, WhatCannotBeWrittenOrReadIsRefused) {
  const Folder folder;
  const auto refused = [&](const std::string& words) {
    const auto run = pipewright(words, folder);
    EXPECT_EQ(run.status, 2) << words;
    return run.err;
  };
  EXPECT_THAT(refused("simulate -s dualpipe -p 2 -m 4 --cost F=1ms,B=2ms,opt=1ms --chakra et"),
              HasSubstr("collectives are not written"));
  EXPECT_THAT(refused(kStep + "--chakra -"), HasSubstr("no folder"));
  folder.write("taken", "");
  EXPECT_THAT(refused(kStep + "--chakra taken"), HasSubstr("cannot make the folder"));
  ASSERT_EQ(pipewright(kStep + "--chakra et -q", folder).status, 0);
  EXPECT_THAT(refused("simulate -s 1f1b -p 2 -m 2 --cost F=1ms,B=2ms --chakra et"),
              HasSubstr("job.2.et: is of a job with more ranks"));
  EXPECT_THAT(refused("analyze et/job.0.et et/job.1.et et/job.1.et"),
              HasSubstr("give one file of each rank"));
  // As PyTorch's ExecutionTraceObserver begins its file.
  folder.write("host.0.json", R"({ "schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [] })");
  EXPECT_THAT(refused("analyze host.0.json"), HasSubstr("operators and no times"));
  EXPECT_THAT(refused("report host.0.json -o page.html"), HasSubstr("chakra_converter"));
}

}  // namespace cli_chakra_test
}  // namespace pipewright::test
