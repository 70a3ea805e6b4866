// tune --measure against launch commands that succeed, fail, hang, run out of memory and are
// killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace measuring_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Document = nlohmann::json;

const char* const kJob =
    R"({"schema": "pipewright.job/1", "model": {"transformer": {"hidden": 2048, "layers": 12,
  "heads": 16, "vocabulary": 50304, "sequence": 2048}}, "cluster": {"preset": "dgx-a100",
  "devices": 8}, "global_batch": 64})";
const char* const kAmong =
    "# what may run\ntp=1,pp=1,dp=8\ntp=2,pp=1,dp=4\ntp=2,pp=2,dp=2\n\ntp=4,pp=1,dp=2\n"
    "tp=1,pp=2,dp=4,micro_batch_size=2\ntp=1,pp=4,dp=2  # deep\ntp=8,pp=1,dp=1\n";
/// Made up: two stages and a small tp are best.
const std::string kSteps = "--read 'step_ms=took ([0-9.]+) ms' ";
const std::string kSure = "--confidence 99 ";
const std::string kTrue =
    "--measure 'echo {configuration} >> ran; echo took $((2000 + 300 * {tp} + 100 * (2 - {pp}) * "
    "(2 - {pp}))) ms' ";

std::string contents(const Folder& folder, const std::string& name) {
  std::ifstream file(folder.path() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

long lines_of(const Folder& folder, const std::string& name) {
  const std::string text = contents(folder, name);
  return std::count(text.begin(), text.end(), '\n');
}

/// Whether the process with the number in the file "child" has ended; nobody may have asked how.
bool is_gone(const Folder& folder) {
  return shell("grep -qs 'State:.[^Z]' /proc/$(cat child)/status", folder).status != 0;
}

struct Measured : testing::Test {
  Folder folder;

  Measured() {
    folder.write("job.json", kJob);
    folder.write("among", kAmong);
  }
  CommandResult tune(const std::string& flags) const {
    return pipewright("tune job.json --among among " + kSteps + flags, folder);
  }
  /// What --json prints, without what depends on the clock.
  Document result(const std::string& flags) const {
    const CommandResult done = tune("--json " + flags);
    EXPECT_EQ(done.status, 0) << done.err;
    Document document = Document::parse(done.out).at("measuring");
    for (Document& trial : document.at("trials")) trial.erase("took_ns");
    return document;
  }
};

TEST_F(Measured, FindsTheBestAndWritesItsPlan) {
  const CommandResult done = tune(kTrue + kSure + "--runs 7 -o plan.json");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("Best of what was measured: tp=1,pp=2,dp=4,micro_batch_size=2, "
                                  "2.30 s a step."));
  const Document plan = Document::parse(contents(folder, "plan.json"));
  EXPECT_EQ(plan.at("mesh").at("shape"), Document({2, 4}));
  EXPECT_THAT(plan.at("tuner").at("reasons").dump(), HasSubstr("The best of "));
  EXPECT_EQ(pipewright("simulate plan.json", folder).status, 0);
}

TEST_F(Measured, KeepsToItsBudgets) {
  EXPECT_EQ(result(kTrue + kSure + "--runs 3").at("trials").size(), 3U);
  const Document short_time = result(kTrue + kSure + "--time-limit 1ns");
  EXPECT_EQ(short_time.at("trials").size(), 1U);
  EXPECT_THAT(short_time.at("stopped").get<std::string>(), HasSubstr("--time-limit"));
  // Far apart from what is asked, little has to be tried.
  const Document sure = result(kTrue + "--within 50 --confidence 50");
  EXPECT_LT(sure.at("trials").size(), 3U);
  EXPECT_LE(sure.at("chance_of_better").get<double>(), 0.5);
}

TEST_F(Measured, GoesOnFromItsJournalToTheSame) {
  const Document whole = result(kTrue + kSure + "--runs 5 --resume whole");
  EXPECT_EQ(lines_of(folder, "ran"), 5);
  EXPECT_EQ(result(kTrue + kSure + "--runs 5 --resume whole"), whole);
  EXPECT_EQ(lines_of(folder, "ran"), 5) << "known ones were run again";
  // Killed in its third run, at a moment that the run itself chooses.
  folder.write("ran", "");
  const std::string killing =
      "--measure 'echo {configuration} >> ran; [ $(wc -l < ran) = 3 ] && [ -e pid ] && kill -KILL "
      "$(cat pid); echo took $((2000 + 300 * {tp} + 100 * (2 - {pp}) * (2 - {pp}))) ms' ";
  const std::string words =
      "tune job.json --among among " + kSure + kSteps + killing + "--runs 5 --resume killed --json";
  const auto killed =
      shell("sh -c 'echo $$ > pid; exec \"$0\" \"$@\"' $PW " + words + " > out", folder);
  EXPECT_EQ(killed.status, 137) << killed.err;
  EXPECT_EQ(lines_of(folder, "killed"), 3) << "the head, and what had ended";
  std::filesystem::remove(folder.path() / "pid");
  const auto resumed = pipewright(words, folder);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  Document document = Document::parse(resumed.out).at("measuring");
  for (Document& trial : document.at("trials")) trial.erase("took_ns");
  EXPECT_EQ(document, whole);
  EXPECT_EQ(lines_of(folder, "ran"), 6) << "the third one twice";
  const auto other = tune(kTrue + "--resume killed");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("this journal is of another search"));
}

TEST_F(Measured, LearnsFromMemoryThatRanOut) {
  const Document found = result(
      "--measure 'if [ {tp} = 1 ]; then echo CUDA out of memory; exit 1; fi; "
      "echo took $((1000 * {tp})) ms' --runs 7 " +
      kSure);
  EXPECT_EQ(found.at("best"), "tp=2,pp=1,dp=4");
  EXPECT_GT(found.at("calibration").at("scales").at("memory").get<double>(), 1.5);
  int out = 0;
  for (const Document& trial : found.at("trials")) out += trial.at("outcome") == "out of memory";
  EXPECT_GT(out, 0);
}

TEST_F(Measured, SaysWhatFailedAndStopsWhereNothingRuns) {
  const CommandResult wrong = tune("--measure 'no-such-command {tp}'");
  EXPECT_EQ(wrong.status, 4);
  EXPECT_THAT(wrong.out, HasSubstr("The first 3 runs failed"));
  EXPECT_THAT(wrong.err, HasSubstr("exit status 127; it ends with: "));
  const CommandResult silent = tune("--measure 'echo done {tp}' --runs 1");
  EXPECT_EQ(silent.status, 4);
  EXPECT_THAT(silent.err, HasSubstr("no step time in its output, by --read"));
  const Document some = result("--measure 'test {pp} = 1 && echo took {tp} ms' --runs 7 " + kSure);
  EXPECT_EQ(some.at("best"), "tp=1,pp=1,dp=8");
}

TEST_F(Measured, EndsWhatTakesTooLongWithAllThatItStarted) {
  const CommandResult done =
      tune("--measure 'sleep 987 & echo $! > child; sleep 987' --run-timeout 300ms --runs 1");
  EXPECT_EQ(done.status, 4);
  EXPECT_THAT(done.err, HasSubstr("timed out (ended after "));
  EXPECT_TRUE(is_gone(folder));
}

TEST_F(Measured, ASignalEndsTheRunAndKeepsTheJournal) {
  const auto done = shell(
      "$PW tune job.json --among among " + kSteps +
          "--resume journal --measure 'echo {tp} >> ran; if [ $(wc -l < ran) = 2 ]; then echo $$ > "
          "child; kill -TERM $(cat pid); sleep 987; fi; echo took {tp} ms' & echo $! > pid; wait "
          "$!",
      folder);
  EXPECT_EQ(done.status, 130) << done.err;
  EXPECT_EQ(lines_of(folder, "journal"), 2);
  EXPECT_TRUE(is_gone(folder));
}

TEST_F(Measured, WritesWhatExportsWrite) {
  const CommandResult done = tune(
      "--measure 'printf \"%s\\n\" {flags:megatron} > words; cp {file:deepspeed} ds.json; "
      "echo took 5 ms' --runs 1 --confidence 50");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(contents(folder, "words"), HasSubstr("--tensor-model-parallel-size\n"));
  EXPECT_THAT(contents(folder, "words"), Not(HasSubstr("ARGS")));
  EXPECT_TRUE(Document::parse(contents(folder, "ds.json")).contains("train_batch_size"));
}

TEST_F(Measured, RefusesWhatItCannotUnderstand) {
  const auto refused = [&](const std::string& words, const std::string& what) {
    const auto done = pipewright("tune job.json " + words, folder);
    EXPECT_EQ(done.status, 2) << words;
    EXPECT_THAT(done.err, HasSubstr(what)) << words;
  };
  refused("--measure 'echo {tp}'", "missing --read");
  refused(kSteps + "--measure 'echo {tpp}'", "unknown placeholder {tpp} (did you mean \"tp\"?)");
  refused(kSteps, "--read belongs to tune --measure");
  refused("--runs 3", "--runs belongs to tune --measure");
  refused(kSteps + kTrue + "--front", "--front does not go with --measure");
  folder.write("among", "tp=1,pp=1,dp=8\ntp=3,pp=1,dp=2\n");
  refused(kSteps + kTrue + "--among among",
          "among: line 2: \"tp=3,pp=1,dp=2\" is no configuration");
  folder.write("among", "\n# none\n");
  refused(kSteps + kTrue + "--among among", "among: expected 1 to 4096 configurations");
}

TEST_F(Measured, RunsOurOwnExecutorForReal) {
  folder.write(
      "cpu.json",
      R"({"schema": "pipewright.job/1", "model": {"transformer": {"hidden": 32, "layers": 4,
  "heads": 2, "vocabulary": 256, "sequence": 16}}, "cluster": {"preset": "local-cpu", "devices": 2},
  "global_batch": 8, "strategy": {"pp_degree": [1, 2], "schedule_mode": ["gpipe", "1f1b"]}})");
  folder.write("text", std::string(4000, 'a'));
  const auto done = pipewright(
      R"(tune cpu.json --measure '"$PW" run {plan} --data text --steps 3 --json -q' )"
      R"(--read 'step_ns="step_ns": ([0-9]+)' --runs 3 --confidence 99 -o best.json --json)",
      folder);
  ASSERT_EQ(done.status, 0) << done.err;
  const Document found = Document::parse(done.out).at("measuring");
  ASSERT_EQ(found.at("trials").size(), 3U);
  for (const Document& trial : found.at("trials")) EXPECT_EQ(trial.at("outcome"), "ran") << trial;
  EXPECT_NE(found.at("calibration").at("scales").at("time"), 1.0);
  EXPECT_EQ(pipewright("run best.json --data text --steps 1", folder).status, 0);
}

}  // namespace measuring_test
}  // namespace pipewright::test
