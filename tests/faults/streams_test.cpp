// What happens around the command: closed and full outputs, readers that go away, Ctrl-C, runs that
// hang.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace streams_test {

TEST(Streams, AReaderThatGoesAwayIsNoError) {
  const Folder folder;
  // The order of 1f1b at these sizes is far larger than the pipe's 64 KiB, so the command meets
  // the closed pipe. ok is 0; a deadlock stays 1.
  const auto result = shell(
      "{ $PW schedules export 1f1b -p 64 -m 2000; echo $? >status; } | head -c 10; cat status",
      folder);
  EXPECT_EQ(result.out, "0F0,0F1,0F0\n");
  EXPECT_EQ(result.err, "");
}

TEST(Streams, AFullDiskIsStatus3) {
  const Folder folder;
  const auto result = pipewright("simulate -s 1f1b -p 2 -m 2 -q >/dev/full", folder);
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("No space left"), std::string::npos) << result.err;
}

TEST(Streams, AClosedOutputIsStatus3AndNoFileGetsItsText) {
  const Folder folder;
  const auto result = pipewright("simulate -s 1f1b -p 2 -m 2 --svg s.svg >&-", folder);
  EXPECT_EQ(result.status, 3);
  const auto check = shell("head -c 4 s.svg; grep -c 'policy' s.svg", folder);
  EXPECT_EQ(check.out, "<svg0\n");
}

TEST(Streams, AnInputMayComeFromStandardInput) {
  const Folder folder;
  const auto result =
      shell("$PW schedules export gpipe -p 2 -m 3 | $PW simulate - --cost F=1,B=2 --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  // (m + p - 1)(F + B) = 4 * 3.
  EXPECT_EQ(nlohmann::json::parse(result.out).at("makespan_ns"), 12);
}

/// Of a shell: until process $pid handles SIGTERM, the 15th bit of what it catches, and a moment
/// more.
const std::string kUntilItListens =
    "until grep -q '^SigCgt:.*[4-7c-f]...$' /proc/$pid/status; do sleep 0.05; done; sleep 0.3; ";

TEST(Interrupt, ARunEndsWith130AndLeavesNothing) {
  const Folder folder;
  // 60 s of pacing; a shell without job control starts background commands with SIGINT ignored,
  // therefore SIGTERM, which is handled alike.
  const auto result = shell(
      "$PW run -s gpipe -p 4 -m 2 --cost F=10s,B=10s --trace t.json --report r.json & pid=$!; " +
          kUntilItListens + "kill -TERM $pid; wait $pid",
      folder);
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_TRUE(folder.names().empty());
}

TEST(Interrupt, AnythingElseEndsWith130) {
  const Folder folder;
  const auto result = shell(
      "mkfifo f; $PW check f & pid=$!; " + kUntilItListens + "kill -TERM $pid; wait $pid", folder);
  EXPECT_EQ(result.status, 130) << result.err;
}

TEST(Interrupt, AProcessThatWaitsForItsJobEndsWith130) {
  const Folder folder;
  const auto result = shell(
      "export PIPEWRIGHT_RANK=0 PIPEWRIGHT_WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=file://$PWD/job; "
      "$PW run -s gpipe -p 2 -m 2 --transport tcp & pid=$!; " +
          kUntilItListens + "kill -TERM $pid; wait $pid",
      folder);
  EXPECT_EQ(result.status, 130) << result.err;
}

TEST(Watchdog, ARunThatHangsNamesTheCycleOfCheck) {
  const std::string subject = " -s paddle-vpp --jobs fused -p 4 -m 8 -v 2 --json";
  const Folder folder;
  const auto check = pipewright("check" + subject, folder);
  const auto run = pipewright(
      "run" + subject + " --cost F=10us,B=20us --trace t.json.gz --report r.json", folder);
  ASSERT_EQ(check.status, 1) << check.err;
  ASSERT_EQ(run.status, 4) << run.err;
  const auto predicted = nlohmann::json::parse(check.out), seen = nlohmann::json::parse(run.out);
  EXPECT_EQ(predicted.at("verdict"), "deadlock");
  EXPECT_EQ(predicted.at("cycle"), seen.at("cycle"));
  EXPECT_EQ(predicted.at("stuck"), seen.at("stuck"));
  EXPECT_FALSE(predicted.at("cycle").empty());
  // The partial trace and the report are there, and they are whole.
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"r.json", "t.json.gz"}));
  EXPECT_EQ(shell("gzip -t t.json.gz", folder).status, 0);
  const auto report = nlohmann::json::parse(shell("cat r.json", folder).out);
  EXPECT_EQ(report.at("schema"), "pipewright.report/1");
  EXPECT_EQ(report.at("outcome"), "stuck");
  EXPECT_EQ(report.at("cycle"), seen.at("cycle"));
  EXPECT_EQ(seen.at("report").at("ranks").size(), 4U);
  for (const auto& rank : report.at("ranks")) {
    EXPECT_EQ(rank.at("state"), "stuck");
    EXPECT_TRUE(rank.at("waits_for").is_string());
    EXPECT_FALSE(rank.at("recent").empty());
    EXPECT_EQ(rank.at("recent").back().at("state"), "waiting");
  }
}

TEST(Watchdog, TheReportIsALineARankWithinEightyColumns) {
  const Folder folder;
  const auto run =
      pipewright("run -s paddle-vpp --jobs fused -p 8 -m 16 -v 2 --preset paddle-vpp", folder);
  ASSERT_EQ(run.status, 4) << run.err;
  std::size_t stuck_lines = 0;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    stuck_lines += line.find("  stuck  ") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(stuck_lines, 8U) << run.out;
}

TEST(Watchdog, ASlowRankIsSaidToBeSlowAndTheRunEndsAtTheDeadline) {
  const Folder folder;
  const auto begin = std::chrono::steady_clock::now();
  const auto run = pipewright(
      "run -s 1f1b -p 3 -m 4 --cost F=60s,B=1ms --watchdog 300ms --json --flight-recorder 2 "
      "--trace t.json --report r.json",
      folder);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(run.status, 4);
  EXPECT_LT(took.count(), 2.3);
  EXPECT_NE(run.err.find("raise --watchdog"), std::string::npos) << run.err;
  const auto report = nlohmann::json::parse(run.out).at("report");
  EXPECT_EQ(report.at("outcome"), "slow");
  EXPECT_TRUE(report.at("verdict").is_null());
  const auto& ranks = report.at("ranks");
  EXPECT_EQ(ranks[0].at("state"), "slow");
  EXPECT_EQ(ranks[0].at("first_unfinished"), "0F0");
  // The deadline counts from the watchdog's last look at what has ended, a little before the rank's
  // own last entry.
  EXPECT_GE(ranks[0].at("idle_ns").get<std::int64_t>(), 200'000'000);
  EXPECT_EQ(ranks[1].at("state"), "waiting");
  EXPECT_EQ(ranks[1].at("waits_for"), "0SEND_F0");
  EXPECT_EQ(ranks[1].at("waits_for_rank"), 0);
  EXPECT_LE(ranks[1].at("recent").size(), 2U);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"r.json", "t.json"}));
  EXPECT_TRUE(nlohmann::json::accept(shell("cat t.json", folder).out));
}

TEST(Watchdog, AReportThatCannotBeWrittenDoesNotTakeTheAnswerAlong) {
  const Folder folder;
  const auto run =
      pipewright("run -s paddle-vpp --jobs fused -p 4 -m 8 -v 2 --report gone/r.json", folder);
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.out.find("DEADLOCK"), std::string::npos);
  EXPECT_NE(run.err.find("gone/r.json"), std::string::npos) << run.err;
}

}  // namespace streams_test
}  // namespace pipewright::test
