// The log of a run (run --log), what analyze says of it, and following a run that goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command_runner.hpp"
#include "tests/support/terminal_runner.hpp"
#include "tools/input/run_log.hpp"
#include "tools/output/run_log_text.hpp"
#include "tools/output/step_lines.hpp"

namespace pipewright::test {
namespace cli_watch_test {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// Steps that compute nothing; 0.1 s each where the clock is the wall's.
const std::string kRun = "run -s 1f1b -p 2 -m 4 --cost F=5ms,B=15ms ";

std::string contents(const Folder& folder, const std::string& name) {
  std::ifstream file(folder.path() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<json> lines_of(const Folder& folder, const std::string& name) {
  std::vector<json> lines;
  std::ifstream file(folder.path() / name);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

/// Until the log of a job in the background has its head.
std::string in_background(const std::string& run) {
  return "$PW " + run +
         "--log run.log > out.txt 2>&1 & while [ ! -s run.log ]; do sleep 0.02; done; ";
}

std::string step_of(int number) {
  return R"({"step":)" + std::to_string(number) + R"(,"step_ns":7,"loss":2.5,"ended_ns":9})" + "\n";
}

std::string head_of(int all) {
  return R"({"schema":"pipewright.log/1","title":"a job","policy":"of it","host":"","first_step":0,)"
         R"("all_steps":)" +
         std::to_string(all) + "}\n";
}

TEST(RunLog, HasALineForEachStepAndSaysHowTheRunEnded) {
  const Folder folder;
  ASSERT_EQ(pipewright(kRun + "--clock virtual --steps 3 --log run.log", folder).status, 0);
  const std::vector<json> lines = lines_of(folder, "run.log");
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0].at("schema"), "pipewright.log/1");
  EXPECT_EQ(lines[0].at("all_steps"), 3);
  for (int step = 1; step <= 3; ++step) {
    const json& line = lines[static_cast<std::size_t>(step)];
    EXPECT_EQ(line.at("step"), step);
    EXPECT_EQ(line.at("step_ns"), 100'000'000);  // (4 + 2 - 1) * 20 ms
    EXPECT_FALSE(line.contains("loss"));         // nothing learns
  }
  EXPECT_EQ(lines[4].at("outcome"), "finished");
}

TEST(RunLog, AnotherRunGoesOnBelowAndIsTheOneThatIsAnalyzed) {
  const Folder folder;
  folder.write("run.log", head_of(9) + step_of(1) + R"({"step":2,"st)");  // killed
  ASSERT_EQ(pipewright(kRun + "--clock virtual --steps 2 --log run.log", folder).status, 0);
  const CommandResult text = pipewright("analyze run.log", folder);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("run.log, the last of 2 runs: steps 1 to 2 of 2, finished"));
  const CommandResult result = pipewright("analyze run.log --json", folder);
  const json document = json::parse(result.out);
  EXPECT_EQ(document.at("log").at("runs"), 2);
  EXPECT_EQ(document.at("log").at("outcome"), "finished");
  EXPECT_EQ(document.at("log").at("median_step_ns"), 100'000'000);
  EXPECT_EQ(document.at("steps").size(), 2U);
}

TEST(RunLog, ATrainingsLossesComeInToo) {
  const Folder folder;
  ASSERT_EQ(
      shell("$PW run " PIPEWRIGHT_SOURCE_DIR "/examples/plan.json --data " PIPEWRIGHT_SOURCE_DIR
            "/README.md --steps 4 --log run.log --json > result.json",
            folder)
          .status,
      0);
  const CommandResult result = pipewright("analyze run.log --json", folder);
  EXPECT_EQ(json::parse(result.out).at("steps"),
            json::parse(contents(folder, "result.json")).at("steps"));
  EXPECT_THAT(pipewright("analyze run.log", folder).out, HasSubstr("loss 5."));
}

TEST(RunLog, SaysThatARunGotStuck) {
  const Folder folder;
  EXPECT_EQ(
      pipewright("run -s paddle-vpp --jobs fused -p 4 -m 8 -v 2 --log run.log", folder).status, 4);
  EXPECT_EQ(lines_of(folder, "run.log").back().at("outcome"), "stuck");
  const CommandResult watched = pipewright("analyze run.log --watch", folder);
  EXPECT_EQ(watched.status, 1);
  EXPECT_THAT(watched.out, HasSubstr("no step yet, stuck"));
}

TEST(Watch, ShowsStepsWhileTheyEndAndEndsWithTheRun) {
  const Folder folder;
  const CommandResult shown =
      shell(in_background(kRun + "--steps 12 ") +
                "$PW analyze run.log --watch | tee all.txt | (sed 3q; cp run.log then.log; cat "
                ">/dev/null); wait",
            folder);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("step "));
  // When the first step was shown, the run was not over.
  EXPECT_THAT(contents(folder, "then.log"), Not(HasSubstr("outcome")));
  EXPECT_THAT(contents(folder, "all.txt"), HasSubstr("step 12 "));
  EXPECT_THAT(contents(folder, "all.txt"), HasSubstr("run.log: steps 1 to 12 of 12, finished"));
}

TEST(Watch, IsOneLineOnATerminal) {
  const Folder folder;
  ASSERT_EQ(shell(in_background(kRun + "--steps 12 "), folder).status, 0);
  const auto shown = on_terminal("analyze run.log --watch", folder, 40);
  EXPECT_EQ(shown.status, 0) << shown.text();
  EXPECT_THAT(shown.text(), HasSubstr("of 12"));
  EXPECT_THAT(shown.text(), HasSubstr("finished"));
  for (const std::string& line : shown.lines) EXPECT_LE(columns_of_line(line), 40U) << line;
}

TEST(Watch, SaysAsMuchAsTheTerminalIsWide) {
  tools::RunLogLines lines("run.log");
  lines.add(head_of(10) + step_of(1) + step_of(2));
  const tools::RunLog& log = lines.log();
  // Two steps took 9 ns together, and eight are to come.
  EXPECT_EQ(tools::watch_line(log, 80, true),
            "step 2 of 10   loss 2.5000   7 ns   36 ns left   ▁▁");
  EXPECT_EQ(tools::watch_line(log, 80, false), "step 2 of 10   loss 2.5000   7 ns   36 ns left");
  EXPECT_EQ(tools::watch_line(log, 30, true), "step 2 of 10   loss 2.5000");
  EXPECT_EQ(tools::watch_line(log, 20, true), "step 2 of 10   7 ns");
  EXPECT_EQ(tools::watch_line(log, 6, true), "step 2");
  const exec::StepResult paced{.loss = {}, .step_ns = 100'000'000};
  EXPECT_EQ(tools::step_progress(3, 4, paced, 100'000'000, 79),
            "step 3 of 4   100 ms   100 ms left");
  EXPECT_EQ(tools::step_progress(4, 4, paced, 0, 79), "step 4 of 4   100 ms");
}

TEST(Watch, EndsWithTheRightStatusAtCtrlC) {
  const Folder folder;
  const CommandResult shown =
      shell(in_background(kRun + "--steps 30 ") +
                "timeout --foreground -s INT --preserve-status 0.5 $PW analyze run.log "
                "--watch; status=$?; kill $!; exit $status",
            folder);
  EXPECT_EQ(shown.status, 130) << shown.out << shown.err;
  EXPECT_THAT(shown.err, HasSubstr("interrupted"));
}

TEST(Watch, SaysThatTheRunWasKilled) {
  const Folder folder;
  const CommandResult shown = shell(in_background(kRun + "--steps 100 ") +
                                        "(sleep 0.4; kill -9 $!) & $PW analyze run.log --watch",
                                    folder);
  EXPECT_EQ(shown.status, 1) << shown.out << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("ended without a word: it was killed"));
  const CommandResult later = pipewright("analyze run.log --json", folder);
  EXPECT_EQ(later.status, 0);
  EXPECT_EQ(json::parse(later.out).at("log").at("outcome"), "gone");
}

TEST(Watch, FollowsAJobOfProcesses) {
  const Folder folder;
  const CommandResult shown = shell(
      "export PIPEWRIGHT_WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=file://$PWD/meeting; for rank in 0 1; "
      "do "
      "PIPEWRIGHT_RANK=$rank $PW " +
          kRun +
          "--steps 5 --transport tcp --log run.log > out$rank.txt 2>&1 & done; "
          "while [ ! -s run.log ]; do sleep 0.02; done; unset PIPEWRIGHT_WORLD_SIZE; "
          "$PW analyze run.log --watch; status=$?; wait; cat out*.txt; exit $status",
      folder);
  EXPECT_EQ(shown.status, 0) << shown.out << shown.err;
  EXPECT_EQ(lines_of(folder, "run.log").size(), 7U);
}

TEST(Watch, SaysInOneSentenceWhatIsNoLog) {
  const Folder folder;
  folder.write("notes.txt", "nothing of the kind\n");
  folder.write("empty.log", "");
  folder.write("hole.log", head_of(9) + step_of(1) + step_of(3));
  folder.write("broken.log", head_of(9) + "{]\n" + step_of(1));
  folder.write("newer.log", R"({"schema":"pipewright.log/2"})"
                            "\n");
  for (const auto& [words, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"analyze none.log --watch", "none.log: is not there; expected the log of a run"},
           {"analyze notes.txt --watch", "notes.txt: is something else; expected the log"},
           {"analyze empty.log --watch", "empty.log: is empty; expected the log of a run"},
           {"analyze . --watch", "is no plain file"},
           {"analyze --watch", "give the FILE"},
           {"analyze hole.log", "expected step 2"},
           {"analyze broken.log", "line 2"},
           {"analyze newer.log", "pipewright.log/"},
           {"analyze hole.log --html page.html", "--html"},
           {kRun + "--log notes.txt", "is no log of a run"}}) {
    const CommandResult refused = pipewright(words, folder);
    EXPECT_EQ(refused.status, 2) << words << refused.out;
    EXPECT_THAT(refused.err, HasSubstr(sentence)) << words;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  EXPECT_EQ(contents(folder, "notes.txt"), "nothing of the kind\n");
}

TEST(RunLog, IsWrittenByOneRunAtATime) {
  const Folder folder;
  const CommandResult second = shell(in_background(kRun + "--steps 30 ") + "$PW " + kRun +
                                         "--log run.log; status=$?; kill $!; exit $status",
                                     folder);
  EXPECT_EQ(second.status, 2) << second.out << second.err;
  EXPECT_THAT(second.err, HasSubstr("another run writes into it"));
}

}  // namespace cli_watch_test
}  // namespace pipewright::test
