// What the command prints: the JSON that outside scripts rely on, the width of text, colour, and
// the pages made from the flag tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_output_test {

using nlohmann::json;

json result_of(const std::string& words, int status = 0) {
  const Folder folder;
  const auto result = pipewright(words + " --json", folder);
  EXPECT_EQ(result.status, status) << words << "\n" << result.err;
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << result.out;
  EXPECT_EQ(document.value("schema", ""), "pipewright.result/1");
  return document;
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// Two ranks, three micro-batches, F = I = W = 10: the first I can start at 20, so rank 1 has 10 of
/// wait and 90 of work.
TEST(Json, TheScheduleAutoComesWithItsBoundAndProof) {
  const json r = result_of("simulate -s auto -p 2 -m 3 --cost F=10,I=10,W=10 --prove --emit-order");
  EXPECT_EQ(r.at("makespan_ns"), 100);
  EXPECT_EQ(r.at("synthesis").at("value_ns"), 100);
  EXPECT_EQ(r.at("synthesis").at("lower_bound_ns"), 100);
  EXPECT_EQ(r.at("synthesis").at("proven"), true);
  EXPECT_EQ(r.at("order").size(), 2U);
}

TEST(Json, TuneSynthesisesAnOrderThatSimulatesToItsValue) {
  const Folder folder;
  const std::string costs = " --cost F=10:12:10:14,I=11,W=8,comm=1 ";
  const auto made = pipewright(
      "tune --synthesise -p 4 -m 6 --mem F=1,limit=3 --json -o order.csv" + costs, folder);
  ASSERT_EQ(made.status, 0) << made.err;
  const json r = json::parse(made.out);
  const auto seen = pipewright("simulate order.csv --json --mem F=1,limit=3" + costs, folder);
  ASSERT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(json::parse(seen.out).at("makespan_ns"), r.at("value_ns"));
  EXPECT_LE(r.at("value_ns"), r.at("best_named_ns"));
}

/// (p - 1 + m)(F + B), 1F1B's closed form.
TEST(SteadyState, ABillionMicroBatchesHaveTheirFigures) {
  const json r = result_of("simulate -s 1f1b -p 4 -m 1000000000 --cost F=1ms,B=2ms --mem F=5");
  EXPECT_EQ(r.at("makespan_ns"), 3'000'000 * (std::int64_t{1'000'000'000} + 3));
  EXPECT_EQ(r.at("ranks")[0].at("busy_ns"), 3'000'000 * std::int64_t{1'000'000'000});
  EXPECT_EQ(r.at("ranks")[0].at("peak_bytes"), 20);
  const Folder folder;
  const auto text = pipewright("simulate -s 1f1b -p 4 -m 1000000000", folder);
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("the steady state was skipped"), std::string::npos) << text.out;
}

/// Forwards and backwards repeat apart, and memory grows until the last forward.
TEST(SteadyState, APhaseOfForwardsAndOneOfBackwards) {
  const std::int64_t m = 1'000'000'000;
  const json r = result_of("simulate -s gpipe -p 4 -m 1000000000 --cost F=1ms,B=2ms --mem F=5");
  EXPECT_EQ(r.at("makespan_ns"), 3'000'000 * (m + 3));
  EXPECT_EQ(r.at("ranks")[3].at("busy_ns"), 3'000'000 * m);
  EXPECT_EQ(r.at("ranks")[3].at("peak_activations"), m);
  EXPECT_EQ(r.at("ranks")[3].at("peak_bytes"), 5 * m);
  const json looped = result_of("simulate -s looped-bfs -p 4 -v 2 -m 1000000000 --cost F=1,B=2");
  EXPECT_EQ(looped.at("makespan_ns"), 3 * (2 * m + 3));
  EXPECT_EQ(looped.at("ranks")[0].at("peak_activations"), 2 * m);
  const json waves = result_of(
      "simulate -s hanayo -p 4 -v 2 -m 1000000000 --cost F=1,I=1,W=1 --param backward=split");
  EXPECT_EQ(waves.at("makespan_ns"), 6 * m + 3 * 2);
  EXPECT_EQ(waves.at("ranks")[0].at("peak_activations"), 2 * m - 3);
}

TEST(SteadyState, WhatNeedsEveryActionIsRefusedWithItsSize) {
  const Folder folder;
  for (const char* flag : {"--trace t.json", "--svg t.svg", "--html t.html", "--emit-order"}) {
    const auto seen = pipewright(std::string("simulate -s 1f1b -p 4 -m 100000000 ") + flag, folder);
    EXPECT_EQ(seen.status, 2) << flag;
    // 8 computations and 3 + 3 messages of two ends for each micro-batch.
    EXPECT_NE(seen.err.find("2000000000 instructions"), std::string::npos) << seen.err;
  }
}

TEST(SteadyState, WhereNothingRepeatsItSaysSo) {
  const Folder folder;
  const auto small = pipewright("simulate -s pipedream -p 2 -m 200000 --json", folder);
  EXPECT_EQ(small.status, 0);
  EXPECT_NE(small.err.find("is not known to repeat itself"), std::string::npos) << small.err;
  const auto large = pipewright("simulate -s pipedream -p 2 -m 1000000000 --json", folder);
  EXPECT_EQ(large.status, 2);
  EXPECT_NE(large.err.find("200 million"), std::string::npos) << large.err;
  EXPECT_NE(large.err.find("is not known to repeat itself"), std::string::npos) << large.err;
}

TEST(Json, CompareCutsTheSameModelForEverySchedule) {
  // Ranks of 4, 4, 4 and 8 us a forward: naive, gpipe and interleaved all do 4 * 20 us of it.
  const json r =
      result_of("compare naive gpipe interleaved -p 4 -m 4 --cost F=4us:4us:4us:8us,B=0");
  ASSERT_EQ(r.at("schedules").size(), 3U);
  for (const json& row : r.at("schedules")) {
    std::int64_t busy = 0;
    for (const json& rank : row.at("ranks")) busy += rank.at("busy_ns").get<std::int64_t>();
    EXPECT_EQ(busy, 80'000) << row.at("schedule");
  }
}

TEST(Json, CompareAllTakesEverySchedulePossibleAtTheSize) {
  const json r = result_of("compare all -p 4 -m 8");
  std::vector<std::string> names;
  for (const json& row : r.at("schedules")) names.push_back(row.at("schedule"));
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_EQ(std::find(names.begin(), names.end(), "paddle-vpp"), names.end());
}

TEST(Json, SimulateHasTheContractsKeysAndNumbers) {
  // 1f1b, p=4, m=8, F=1 ms, B=2 ms: step (m+p-1)(F+B) = 33 ms, busy m(F+B) = 24 ms,
  // bubble 3/11, rank r holds at most p-r activations of 5 bytes.
  const json r = result_of("simulate -s 1f1b -p 4 -m 8 --cost F=1ms,B=2ms --mem F=5 --emit-order");
  EXPECT_EQ(keys_of(r), (std::vector<std::string>{"bubble_ratio", "makespan_ns", "order", "ranks",
                                                  "schema", "span_bubble_ratio"}));
  EXPECT_EQ(r.at("makespan_ns"), 33'000'000);
  EXPECT_DOUBLE_EQ(r.at("bubble_ratio"), 9.0 / 33);
  // Rank 0 spans the whole step.
  EXPECT_DOUBLE_EQ(r.at("span_bubble_ratio"), 9.0 / 33);
  ASSERT_EQ(r.at("ranks").size(), 4U);
  for (int rank = 0; rank < 4; ++rank) {
    const json& figures = r.at("ranks")[static_cast<std::size_t>(rank)];
    EXPECT_EQ(keys_of(figures),
              (std::vector<std::string>{"busy_ns", "peak_activations", "peak_bytes", "span_ns"}));
    EXPECT_EQ(figures.at("busy_ns"), 24'000'000);
    EXPECT_EQ(figures.at("peak_activations"), 4 - rank);
    EXPECT_EQ(figures.at("peak_bytes"), 5 * (4 - rank));
  }
  // The first micro-batch reaches rank 3 after 3 ms and its last action ends 6 ms before the end.
  EXPECT_EQ(r.at("ranks")[3].at("span_ns"), 24'000'000);
  EXPECT_EQ(r.at("order")[3][0], "3F0");
  EXPECT_EQ(r.at("order")[0].back(), "0B7");
}

TEST(Json, CheckHasTheContractsKeys) {
  const json good = result_of("check -s 1f1b -p 2 -m 2");
  EXPECT_EQ(keys_of(good),
            (std::vector<std::string>{"cycle", "fix", "lane_cycle", "notes", "problems", "schema",
                                      "stuck", "verdict", "verdicts"}));
  EXPECT_EQ(good.at("verdict"), "ok");
  EXPECT_TRUE(good.at("fix").is_null());
}

TEST(Json, CheckNamesTheCycle) {
  // Rank 0 receives before it sends, on one lane: its RECV waits for rank 1's SEND, which stands
  // behind rank 1's RECV, which waits for rank 0's SEND, which stands behind rank 0's RECV.
  const Folder folder;
  folder.write("a.csv", "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  const auto result = pipewright("check a.csv --issue inline --json", folder);
  EXPECT_EQ(result.status, 1) << result.err;
  const json bad = json::parse(result.out);
  EXPECT_EQ(bad.at("verdict"), "deadlock");
  EXPECT_EQ(bad.at("cycle"), json::parse(R"([
    {"rank": 0, "instruction": "0RECV_B0", "waits_for": "1SEND_B0", "behind": "1RECV_F0"},
    {"rank": 1, "instruction": "1RECV_F0", "waits_for": "0SEND_F0", "behind": "0RECV_B0"}])"));
  EXPECT_EQ(bad.at("stuck"), json::parse(R"([
    {"rank": 0, "lane": 0, "instruction": "0RECV_B0"},
    {"rank": 1, "lane": 0, "instruction": "1RECV_F0"}])"));
  // Where transfers have queues of their own, nothing stands behind anything.
  EXPECT_EQ(pipewright("check a.csv --preset torch-gloo", folder).status, 0);
  EXPECT_EQ(pipewright("check a.csv", folder).status, 1);
}

TEST(Json, AMissingActionIsInvalidAndAFragmentIsNot) {
  const Folder folder;
  folder.write("a.csv", "0F0,0F1\n1F0,1B0\n");
  const auto whole = pipewright("check a.csv --json", folder);
  EXPECT_EQ(whole.status, 1);
  EXPECT_EQ(json::parse(whole.out).at("verdict"), "invalid");
  EXPECT_FALSE(json::parse(whole.out).at("problems").empty());
  const auto fragment = pipewright("check a.csv --fragment --json", folder);
  EXPECT_EQ(fragment.status, 0) << fragment.out;
}

TEST(Json, AnInputThatLiesOutsideAFragmentIsADeadlockWithoutCycle) {
  const Folder folder;
  // Rank 1's send never comes: the receive waits for something outside.
  folder.write("a.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0\n");
  const auto result = pipewright("check a.csv --fragment --json", folder);
  EXPECT_EQ(result.status, 1) << result.out;
  const json document = json::parse(result.out);
  EXPECT_EQ(document.at("verdict"), "deadlock");
  EXPECT_TRUE(document.at("cycle").empty());
  EXPECT_FALSE(document.at("stuck").empty());
}

TEST(Json, RunHasTheContractsKeysAndAgreesWithSimulate) {
  const std::string sizes = " -s interleaved -p 2 -m 4 -v 2 --cost F=1us,B=2us --preset torch";
  const json run = result_of("run --clock virtual --steps 2" + sizes);
  EXPECT_EQ(keys_of(run), (std::vector<std::string>{"bubble_ratio", "clock", "outcome", "phases",
                                                    "schema", "steps", "verify"}));
  EXPECT_EQ(run.at("outcome"), "finished");
  ASSERT_EQ(run.at("steps").size(), 2U);
  EXPECT_EQ(run.at("steps")[1].at("step_ns"), result_of("simulate" + sizes).at("makespan_ns"));
  EXPECT_TRUE(run.at("verify").is_null());
}

TEST(Json, CompareAndScheduleListsAndDoctorParse) {
  const json table = result_of("compare gpipe 1f1b interleaved -p 2 -m 4");
  EXPECT_EQ(table.at("schedules").size(), 3U);
  EXPECT_FALSE(result_of("schedules list").at("schedules").empty());
  EXPECT_EQ(result_of("schedules show VPP").at("name"), "interleaved");
  EXPECT_FALSE(result_of("doctor").at("devices").empty());
}

TEST(Status, OverMemoryAndFailIfAreOne) {
  const Folder folder;
  EXPECT_EQ(pipewright("simulate -s gpipe -p 2 -m 4 --mem F=10,limit=39", folder).status, 1);
  EXPECT_EQ(pipewright("simulate -s gpipe -p 2 -m 4 --mem F=10,limit=40", folder).status, 0);
  EXPECT_EQ(pipewright("check -s gpipe -p 2 -m 4 --mem F=10,limit=39", folder).status, 1);
  // naive takes m(p-1) more steps than gpipe's p-1: far more than a tenth slower.
  const std::string two = "compare gpipe naive -p 4 -m 8 --fail-if ";
  EXPECT_EQ(pipewright(two + "'step > 10%'", folder).status, 1);
  EXPECT_EQ(pipewright(two + "'step>500%'", folder).status, 0);
}

TEST(Traces, WrittenReadComparedAndAnalysed) {
  const Folder folder;
  const std::string subject = " -s zb-h1 -p 3 -m 5 --preset torch -q";
  ASSERT_EQ(pipewright("simulate --trace a.json" + subject, folder).status, 0);
  ASSERT_EQ(pipewright("run --clock virtual --trace b.json.gz" + subject, folder).status, 0);
  const auto compared = pipewright("compare a.json b.json.gz --fail-if 'step>0%' --json", folder);
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_EQ(json::parse(compared.out).at("compared_actions"), 3 * 5 * 3);
  // Bubbles of a trace that was read back are those of the simulation it came from, and their sum
  // is what ranks * step has beyond the busy time.
  const auto read = pipewright("analyze a.json --json", folder);
  ASSERT_EQ(read.status, 0) << read.err;
  const auto direct = pipewright("analyze --json" + subject, folder);
  const json from_file = json::parse(read.out), from_schedule = json::parse(direct.out);
  EXPECT_EQ(from_file.at("bubbles"), from_schedule.at("bubbles"));
  std::int64_t bubbles = 0, busy = 0;
  for (const auto& [cause, ns] : from_file.at("bubbles").items()) bubbles += ns.get<std::int64_t>();
  for (const json& rank : from_file.at("ranks")) busy += rank.at("busy_ns").get<std::int64_t>();
  EXPECT_EQ(bubbles, 3 * from_file.at("makespan_ns").get<std::int64_t>() - busy);
}

TEST(Traces, OfAnAsynchronousOrderAreReadBack) {
  const Folder folder;
  folder.write("order.csv",
               "0F0@0,0F1@0,0B0@0,OPT,0F2@1,0B1@0,OPT,0B2@1,OPT\n"
               "1F0@0,1B0@0,OPT,1F1@1,1B1@1,OPT,1F2@2,1B2@2,OPT\n");
  const std::string subject = "order.csv --cost F=1ms,B=2ms,OPT=1ms,comm=1us -q";
  ASSERT_EQ(pipewright("simulate --trace a.json " + subject, folder).status, 0);
  const auto read = pipewright("analyze a.json --json", folder);
  ASSERT_EQ(read.status, 0) << read.err;
  const auto direct = pipewright("analyze --json " + subject, folder);
  EXPECT_EQ(json::parse(read.out).at("bubbles"), json::parse(direct.out).at("bubbles"));
  EXPECT_EQ(json::parse(read.out).at("ranks").at(0).at("busy_ns"), 12'000'000);
}

/// Columns of the widest line; a code point is one.
std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0, columns = 0;
  for (const char c : text) {
    if (c == '\n') {
      widest = std::max(widest, columns);
      columns = 0;
    } else if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) {
      ++columns;
    }
  }
  return std::max(widest, columns);
}

class Text : public testing::TestWithParam<const char*> {};

TEST_P(Text, FitsEightyColumnsWithoutColourInAPipe) {
  const Folder folder;
  const auto result = pipewright(GetParam(), folder);
  EXPECT_LE(widest_line(result.out), 80U) << result.out;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  EXPECT_FALSE(result.out.empty()) << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    Pages, Text,
    testing::Values("--help", "help run", "demo --help", "schedules --help",
                    "schedules list --help", "schedules show --help", "schedules export --help",
                    "simulate --help", "compare --help", "check --help", "tune --help",
                    "run --help", "profile --help", "analyze --help", "doctor --help",
                    "completions --help", "doctor", "schedules list", "schedules show zb-h1",
                    "simulate -s interleaved -p 16 -m 64 --mem F=1GB",
                    "simulate -s 1f1b -p 70 -m 200", "analyze -s zb-h1 -p 4 -m 8",
                    "check -s paddle-vpp --jobs fused -p 8 -m 16 -v 2",
                    "compare naive gpipe 1f1b interleaved zb-h1 -p 4 -m 8 --mem F=1GB",
                    "run -s gpipe -p 2 -m 2 --cost F=10us,B=10us"));

/// But for rows of tables, which are whole in a pipe.
TEST(Output, IsAsWideAsAskedFor) {
  const Folder folder;
  for (const char* words : {"simulate -s 1f1b -p 2 -m 32", "analyze -s 1f1b -p 2 -m 32",
                            "run -s 1f1b -p 2 -m 32 --clock virtual"}) {
    for (const std::size_t width : {50U, 140U}) {
      const auto shown = pipewright(words + (" --width " + std::to_string(width)), folder);
      EXPECT_EQ(shown.status, 0) << shown.err;
      std::istringstream lines(shown.out);
      std::size_t longest = 0;  // row of a timeline
      for (std::string line; std::getline(lines, line);) {
        if (line.find('|') == line.npos) continue;
        const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; };
        const auto columns = std::count_if(line.begin(), line.end(), begins);
        longest = std::max(longest, static_cast<std::size_t>(columns));
      }
      EXPECT_LE(longest, width) << shown.out;
      EXPECT_GT(longest, width - 20) << shown.out;
    }
  }
}

TEST(Colour, OnlyWhereItIsWanted) {
  const Folder folder;
  const std::string words = "$PW simulate -s 1f1b -p 2 -m 2 ";
  EXPECT_NE(shell(words + "--color always", folder).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(shell(words + "--color never", folder).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(shell("NO_COLOR=1 " + words, folder).out.find('\x1b'), std::string::npos);
}

TEST(Output, TheSameInputGivesTheSameBytes) {
  const Folder folder;
  const std::string words = "simulate -s zb-h1 -p 4 -m 8 --json --emit-order --trace ";
  const auto first = pipewright(words + "a.json.gz", folder);
  const auto second = pipewright(words + "b.json.gz", folder);
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(shell("cmp a.json.gz b.json.gz", folder).status, 0);
}

TEST(Output, NotesGoToStderrAndQuietSilencesThem) {
  const Folder folder;
  const auto loud = pipewright("simulate -s 1f1b -p 2 -m 2", folder);
  EXPECT_NE(loud.err.find("next:"), std::string::npos);
  EXPECT_EQ(pipewright("simulate -s 1f1b -p 2 -m 2 -q", folder).err, "");
}

TEST(Completions, AreScriptsThatTheirShellReads) {
  const Folder folder;
  const auto bash = shell("$PW completions bash >c && bash -n c", folder);
  EXPECT_EQ(bash.status, 0) << bash.err;
  // Completing a sub-command, a flag and a value.
  const auto tried = shell(
      "bash -c '. ./c; COMP_WORDS=(pipewright sim); COMP_CWORD=1; _pipewright; echo $COMPREPLY; "
      "COMP_WORDS=(pipewright simulate --sched); COMP_CWORD=2; _pipewright; echo $COMPREPLY; "
      "COMP_WORDS=(pipewright simulate --schedule zb); COMP_CWORD=3; _pipewright; echo "
      "$COMPREPLY'",
      folder);
  EXPECT_EQ(tried.out, "simulate\n--schedule\nzb-h1\n") << tried.err;
  EXPECT_NE(pipewright("completions fish", folder).out.find("complete -c pipewright"),
            std::string::npos);
  EXPECT_EQ(pipewright("completions zsh", folder).out.rfind("#compdef pipewright", 0), 0U);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Pages, TheManualInDocsIsTheOneThatTheCommandPrints) {
  const Folder folder;
  EXPECT_EQ(contents(PIPEWRIGHT_SOURCE_DIR "/docs/man/pipewright.1"),
            pipewright("--man", folder).out)
      << "regenerate it: pipewright --man > docs/man/pipewright.1";
}

TEST(Pages, TheTableOfSchedulesInDocsIsTheRegistrys) {
  const Folder folder;
  const std::string page = contents(PIPEWRIGHT_SOURCE_DIR "/docs/schedules.md");
  EXPECT_NE(page.find(pipewright("schedules list --markdown", folder).out), std::string::npos)
      << "put the output of pipewright schedules list --markdown in place of the table";
}

TEST(Pages, TheReferenceInDocsIsTheOneThatTheCommandPrints) {
  const Folder folder;
  const std::string page = contents(PIPEWRIGHT_SOURCE_DIR "/docs/cli.md");
  const std::size_t begin = page.find("## Commands\n");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin), pipewright("--markdown", folder).out)
      << "replace the part of docs/cli.md from \"## Commands\" on by pipewright --markdown";
}

}  // namespace cli_output_test
}  // namespace pipewright::test
