// What `run` shows of a run that does not finish, where the command line cannot bring it about: a
// rank that dies, and one that never comes home.
#include "tools/output/run_report.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/local/transport.hpp"
#include "tests/support/faulty_device.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace run_report_test {

using test::Fault;
using test::FaultyDevice;

Session quiet_session() { return {Terminal{}, false, true}; }

Subject subject_of(std::string_view schedule, int ranks, int micro_batches) {
  Subject subject;
  subject.title = "test";
  subject.order = planner::make_order(
      schedule, {.ranks = ranks, .micro_batches = micro_batches, .chunks = 1, .parameters = {}});
  subject.program = lower(subject.order, CommPolicy{});
  subject.costs = CostTable::uniform(subject.program.stages, {}, Nanoseconds(0));
  return subject;
}

/// Runs until the instruction, where the rank fails or never comes back.
exec::RunResult run_into(const Subject& subject, const std::string& instruction, Fault fault,
                         const exec::RunOptions& options) {
  const Program& program = subject.program;
  InstructionId where = 0;
  while (program.text(where) != instruction) ++where;
  std::atomic<bool> never{false};
  exec::local::LocalTransport transport(program,
                                        exec::local::paced_messages(program, subject.costs));
  return exec::run(
      program, subject.costs, transport,
      [&](RankId rank, exec::Clock& clock) {
        return std::make_unique<FaultyDevice>(
            std::make_unique<exec::paced::Device>(program, subject.costs, rank, clock), where,
            fault, never);
      },
      options);
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(RunReport, ADeadRankIsNamedInTextAndJson) {
  const Subject subject = subject_of("1f1b", 3, 4);
  try {
    run_into(subject, "1F2", Fault::Throws, {});
    FAIL() << "it cannot have finished";
  } catch (const exec::RunFailed& failed) {
    const Json fields = run_report_fields(subject.program, failed.result(), 4);
    EXPECT_EQ(fields.at("outcome"), "failed");
    EXPECT_EQ(fields.at("failure"), "rank 1, 1F2, step 0: the device fell off the bus");
    EXPECT_TRUE(fields.at("verdict").is_null());
    const Json& dead = fields.at("ranks")[1];
    EXPECT_EQ(dead.at("state"), "dead");
    EXPECT_EQ(dead.at("first_unfinished"), "1F2");
    EXPECT_EQ(dead.at("recent").size(), 4U);
    EXPECT_EQ(dead.at("recent").back().at("instruction"), "1F2");
    EXPECT_EQ(dead.at("lanes")[0].at("name"), "compute");
    const std::string text = run_report_text(subject.program, failed.result(), Terminal{});
    EXPECT_NE(text.find("   1  dead  "), std::string::npos) << text;
  }
}

TEST(RunReport, LongNamesAreCutToTheTerminal) {
  const Subject subject = subject_of("1f1b", 2, 2);
  exec::RunResult result;
  result.outcome = exec::Outcome::Stuck;
  result.report.ranks.push_back({.rank = RankId(1), .state = exec::RankState::Stuck});
  result.report.ranks.back().waits_for = 0;
  for (const int width : {40, 80}) {
    std::istringstream lines(run_report_text(subject.program, result, Terminal{.width = width}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
  }
}

TEST(RunReport, ARankThatNeverComesHomeDoesNotKeepTheReportAndTheTrace) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "never_home";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto give_up = [&] {
    const Subject subject = subject_of("1f1b", 2, 2);
    const Command command = run_command();
    Arguments arguments(command);
    arguments.add("--report", folder / "r.json");
    arguments.add("--trace", folder / "t.json");
    Session session = quiet_session();
    run_into(subject, "0B0", Fault::WorksOn,
             {.watchdog_ns = 100'000'000, .on_overdue = [&](const exec::RunResult& result) {
                leave_without_ranks(arguments, subject, result, session);
              }});
  };
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(give_up(), testing::ExitedWithCode(4), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2100));
  const Json report = Json::parse(file_text(folder / "r.json"));
  EXPECT_EQ(report.at("outcome"), "slow");
  EXPECT_EQ(report.at("ranks")[0].at("first_unfinished"), "0B0");
  EXPECT_EQ(report.at("ranks")[0].at("state"), "slow");
  EXPECT_TRUE(Json::accept(file_text(folder / "t.json")));
  std::filesystem::remove_all(folder);
}

}  // namespace run_report_test
}  // namespace pipewright::tools
