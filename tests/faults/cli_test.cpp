// Bad command lines and bad files: one clear sentence on stderr, the right exit status, nothing on
// stdout, and no file left behind. The sentences are the contract with the user, so each case names
// the words that must be in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_test {

struct BadLine {
  const char* words;
  int status;
  const char* says;  // must be in the sentence
};
void PrintTo(const BadLine& bad, std::ostream* out) { *out << bad.words; }

constexpr const char* kSized = "simulate -s 1f1b -p 2 -m 2";

class BadCommandLine : public testing::TestWithParam<BadLine> {};

TEST_P(BadCommandLine, EndsWithOneSentence) {
  const Folder folder;
  folder.write("plan.json", "{\"schema\": \"pipewright.plan/1\"}");
  folder.write("order.csv", "0F0,0B0\n");
  const auto before = folder.names();
  const CommandResult result = pipewright(GetParam().words, folder);
  EXPECT_EQ(result.status, GetParam().status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.rfind("pipewright", 0), 0U) << result.err;
  EXPECT_NE(result.err.find(GetParam().says), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Usage, BadCommandLine,
    testing::Values(
        BadLine{"", 2, "no command"}, BadLine{"simulat", 2, "did you mean \"simulate\"?"},
        BadLine{"frobnicate", 2, "the commands are"},
        BadLine{"--json simulate", 2, "flags come after a command"},
        BadLine{"schedules", 2, "list, show, export"},
        BadLine{"schedules lits", 2, "did you mean \"list\"?"},
        BadLine{"schedules show", 2, "missing NAME"},
        BadLine{"schedules show 1f1", 2, "did you mean \"1f1b\"?"},
        BadLine{"simulate --shedule 1f1b", 2, "did you mean \"--schedule\"?"},
        BadLine{"simulate -z", 2, "unknown flag -z"}, BadLine{"simulate", 2, "nothing to read"},
        BadLine{"simulate --schedule", 2, "--schedule needs a value"},
        BadLine{"simulate -s zb-h2x -p 2 -m 2", 2, "zb-h2x"},
        BadLine{"simulate -s 1f1b", 2, "--pp P and --micro-batches M"},
        BadLine{"simulate -s 1f1b -p 2 -m 2 order.csv", 2, "not both"},
        BadLine{"simulate order.csv -p 2", 2, "--pp belongs to --schedule"},
        BadLine{"simulate order.csv more.csv", 2, "unexpected argument \"more.csv\""},
        BadLine{"check order.csv --out fixed.csv", 2, "--out belongs to --fix"},
        BadLine{"completions tcsh", 2, "bash, zsh, fish"}, BadLine{"compare", 2, "missing WHAT"},
        BadLine{"compare a.json gpipe", 2, "two traces"},
        BadLine{"compare gpipe 1f1b -p 2 -m 2 --fail-if step", 2, "METRIC>LIMIT"},
        BadLine{"compare gpipe 1f1b -p 2 -m 2 --fail-if 'stpe>5%'", 2, "did you mean \"step\"?"}));

std::string sized(const char* rest) { return std::string(kSized) + " " + rest; }

struct BadValue {
  const char* rest;
  const char* says;
};
void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.rest; }

class BadFlagValue : public testing::TestWithParam<BadValue> {};

TEST_P(BadFlagValue, NamesTheFlagAndWhatWasExpected) {
  const Folder folder;
  const CommandResult result = pipewright(sized(GetParam().rest), folder);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find(GetParam().says), std::string::npos) << result.err;
  EXPECT_TRUE(folder.names().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadFlagValue,
    testing::Values(BadValue{"-p 3", "--pp is given 2 times"},
                    BadValue{"--vpp 0", "--vpp: expected a whole number from 1"},
                    BadValue{"--vpp 1x", "found \"1x\""},
                    BadValue{"--vpp 99999999999999999999", "--vpp: expected"},
                    BadValue{"--vpp 2", "1f1b"}, BadValue{"--param group", "KEY=VALUE"},
                    BadValue{"--param depth=3", "depth"},
                    BadValue{"--jobs fuzed", "did you mean \"fused\"?"},
                    BadValue{"--cost F=1xs", "--cost F: expected a duration"},
                    BadValue{"--cost Q=1", "--cost: unknown key \"Q\""},
                    BadValue{"--cost F=-1", "--cost F"}, BadValue{"--cost F", "--cost"},
                    BadValue{"--mem limit=1XB", "--mem limit"},
                    BadValue{"--preset idael", "did you mean \"ideal\"?"},
                    BadValue{"--issue inlin", "did you mean \"inline\"?"},
                    BadValue{"--channel edges", "did you mean \"edge\"?"},
                    BadValue{"--protocol eager:0", "--protocol"},
                    BadValue{"--protocol rendezvouz", "--protocol"},
                    BadValue{"--post late", "early, deferred, at-start"},
                    BadValue{"--run-order odd-even", "as-lowered, even-odd"},
                    BadValue{"--color sometimes", "auto, always, never"},
                    BadValue{"--width 10", "--width: expected a whole number from 40"}));

struct BadFile {
  const char* words;
  const char* name;
  const char* text;
  const char* says;
};
void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.words; }

class BadInputFile : public testing::TestWithParam<BadFile> {};

TEST_P(BadInputFile, NamesTheFileAndThePlace) {
  const Folder folder;
  folder.write(GetParam().name, GetParam().text);
  const CommandResult result = pipewright(GetParam().words, folder);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find(GetParam().name), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(GetParam().says), std::string::npos) << result.err;
  // A bad cell is shown with an arrow below it; everything else is one line.
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 3) << result.err;
  EXPECT_EQ(folder.names(), std::vector<std::string>{GetParam().name});
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadInputFile,
    testing::Values(
        BadFile{"simulate a.csv", "a.csv", "0F0,zz9\n", "row 1, cell 2"},
        BadFile{"check a.csv", "a.csv", "", "a.csv"},
        BadFile{"simulate plan.json --trace t.json", "plan.json", "{", "line 1"},
        BadFile{"simulate plan.json", "plan.json", "{}", "\"schema\": \"pipewright.plan/1\""},
        BadFile{"check plan.json", "plan.json", "{\"schema\": \"pipewright.plan/9\"}", "/schema"},
        BadFile{"simulate plan.json", "plan.json", "{\"schema\": \"pipewright.plan/1\"}",
                "\"model\""},
        BadFile{"run job.json", "job.json", "{\"schema\": \"pipewright.job/1\", \"modle\": 1}",
                "did you mean \"model\"?"},
        BadFile{"tune job.json -o out.json", "job.json", "[]", "job.json"},
        BadFile{"tune job.json", "job.json",
                "{\"schema\": \"pipewright.job/1\", \"model\": \"gpt-tini\", \"cluster\": "
                "\"local-cpu\", \"global_batch\": 4}",
                "did you mean \"gpt-tiny\"?"},
        BadFile{"simulate job.json", "job.json",
                "{\"schema\": \"pipewright.job/1\", \"model\": \"gpt-tiny\", \"cluster\": "
                "\"local-cpu\", \"global_batch\": 4}",
                "/tuner_load_path"},
        BadFile{"simulate job.json", "job.json",
                "{\"schema\": \"pipewright.job/1\", \"model\": \"gpt-tiny\", \"cluster\": "
                "\"local-cpu\", \"global_batch\": 4, \"tuner_load_path\": \"gone.json\"}",
                "gone.json"},
        BadFile{"run job.json", "job.json",
                "{\"schema\": \"pipewright.job/1\", \"model\": \"gpt-tiny\", \"cluster\": "
                "\"local-cpu\", \"global_batch\": 4, \"tuner_run_mode\": \"tuner_only\"}",
                "/tuner_run_mode"},
        BadFile{"profile model.json", "model.json", "{\"schema\": \"pipewright.model/1\"}",
                "\"transformer\""},
        BadFile{"analyze t.json", "t.json", "{\"traceEvents\": []}", "t.json"},
        BadFile{"analyze t.json", "t.json",
                R"([{"ph":"X","name":"0F0","pid":1,"tid":1,"ts":0,"dur":9e9},
                    {"ph":"X","name":"0B0","pid":1,"tid":1,"ts":1,"dur":9e9}])",
                "0B0 begins"},
        BadFile{"compare t.json t.json", "t.json", "not a trace", "t.json"},
        BadFile{"compare t.json.gz t.json.gz", "t.json.gz", "\x1f\x8b\x08garbage", "t.json.gz"},
        BadFile{"run a.csv --device cpu", "a.csv", "0F0,0B0\n", "model"},
        BadFile{"run a.csv", "a.csv", "0F0,0I0\n", "whole order"}));

struct CannotDo {
  const char* words;
  const char* says;
};
void PrintTo(const CannotDo& bad, std::ostream* out) { *out << bad.words; }

class MissingAbility : public testing::TestWithParam<CannotDo> {};

TEST_P(MissingAbility, IsASentenceAndStatus3) {
  const Folder folder;
  const CommandResult result = pipewright(GetParam().words, folder);
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find(GetParam().says), std::string::npos) << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    Machine, MissingAbility,
    testing::Values(CannotDo{"run -s 1f1b -p 2 -m 2 --device cuda", "--device cpu"},
                    CannotDo{"run -s 1f1b -p 2 -m 2 --transport mpi", "mpi"},
                    CannotDo{"run -s 1f1b -p 2 -m 2 --transport tcp", "PIPEWRIGHT_RANK"},
                    CannotDo{"run -s 1f1b -p 2 -m 2 --transport nccl", "--transport local"},
                    CannotDo{"simulate -s 1f1b -p 2 -m 2 --trace gone/t.json", "gone/t.json"},
                    CannotDo{"schedules export 1f1b -p 2 -m 2 -o gone/o.csv", "gone/o.csv"}));

}  // namespace cli_test
}  // namespace pipewright::test
