// Flags that change one field, output flags given "-", and names as they are written on a command
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace cli_flags_test {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPlan = PIPEWRIGHT_SOURCE_DIR "/examples/plan.json";

json result_of(const std::string& words, const Folder& folder) {
  const auto result = pipewright(words + " --json", folder);
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << words << result.out << result.err;
  return document;
}

std::int64_t peak(const json& result) {
  std::int64_t most = 0;
  for (const json& rank : result.at("ranks"))
    most = std::max(most, rank.at("peak_bytes").get<std::int64_t>());
  return most;
}

TEST(OneField, ALimitIsHeldAgainstThePlansOwnMemory) {
  const Folder folder;
  const std::int64_t needed = peak(result_of("simulate " + kPlan, folder));
  ASSERT_GT(needed, 0);
  for (const char* command : {"simulate ", "check ", "run --device paced --clock virtual "}) {
    const auto limited = [&](std::int64_t limit) {
      return pipewright(command + kPlan + " --mem limit=" + std::to_string(limit), folder);
    };
    EXPECT_EQ(limited(needed).status, 0) << command << limited(needed).err;
    const auto over = limited(needed - 1);
    EXPECT_EQ(over.status, 1) << command << over.out << over.err;
    EXPECT_THAT(over.out + over.err, HasSubstr("over the limit")) << command;
  }
  EXPECT_EQ(peak(result_of("simulate " + kPlan + " --mem limit=1GiB", folder)), needed);
}

TEST(OneField, ACostLeavesThePlansOtherCostsAndItsMemory) {
  const Folder folder;
  const json before = result_of("simulate " + kPlan, folder);
  const json after = result_of("simulate " + kPlan + " --cost F=1ms", folder);
  EXPECT_EQ(peak(after), peak(before));
  // Eight micro-batches of the rank's F and B.
  EXPECT_EQ(after.at("ranks")[0].at("busy_ns"), 8 * (1'000'000 + 604'241));
  const auto text = pipewright("simulate " + kPlan + " --cost F=1ms", folder);
  EXPECT_THAT(text.out, HasSubstr("with --cost F=1ms"));
}

TEST(OneField, OfCostsIsRefusedByATraining) {
  const Folder folder;
  ASSERT_EQ(write_small_job(folder).status, 0);
  for (const char* flag : {"--cost F=1ms", "--mem limit=1GiB", "--message-bytes 5"}) {
    const auto result = pipewright(std::string("run plan.json --steps 1 ") + flag, folder);
    EXPECT_EQ(result.status, 2) << flag;
    EXPECT_THAT(result.err, HasSubstr("belongs to --device paced")) << flag;
  }
}

TEST(OneField, OfAnOrderLeavesTheAssumedCosts) {
  const Folder folder;
  const std::string words = "simulate -s 1f1b -p 2 -m 4";
  const json before = result_of(words, folder);
  const json after = result_of(words + " --cost comm=1us", folder);
  EXPECT_EQ(after.at("ranks")[0].at("busy_ns"), before.at("ranks")[0].at("busy_ns"));
  EXPECT_GT(after.at("makespan_ns"), before.at("makespan_ns"));
  EXPECT_THAT(pipewright(words + " --cost F=2ms", folder).out, HasSubstr("(assumed: I, W"));
}

TEST(OneField, ALimitWithoutAnyMemoryIsRefusedAndNeverFits) {
  const Folder folder;
  for (const char* words :
       {"simulate -s 1f1b -p 2 -m 4", "check -s 1f1b -p 2 -m 4", "compare gpipe 1f1b -p 2 -m 4"}) {
    const auto result = pipewright(std::string(words) + " --mem limit=10GiB", folder);
    EXPECT_EQ(result.status, 2) << words << result.out;
    EXPECT_THAT(result.err, HasSubstr("says what a stage holds")) << words;
  }
}

TEST(OneField, WhatBelongsToOtherInputsIsRefused) {
  const Folder folder;
  ASSERT_EQ(pipewright("simulate " + kPlan + " --trace t.json -q", folder).status, 0);
  for (const std::string& words :
       {std::string("analyze t.json --cost F=1ms"), std::string("analyze t.json --issue inline"),
        std::string("compare t.json t.json --message-bytes 5"),
        "compare " + kPlan + " " + kPlan + " --cost F=1ms"}) {
    const auto result = pipewright(words, folder);
    EXPECT_EQ(result.status, 2) << words << result.out;
    EXPECT_THAT(result.err, HasSubstr("belongs to")) << words;
  }
}

TEST(StandardOutput, IsTheFileOfAnOutputFlag) {
  const Folder folder;
  const std::string words = "simulate -s 1f1b -p 2 -m 2 ";
  ASSERT_EQ(pipewright(words + "--svg a.svg --html a.html --trace a.json", folder).status, 0);
  for (const char* name : {"svg", "html", "trace"}) {
    const auto file =
        shell(std::string("cat a.") + (name == std::string_view("trace") ? "json" : name), folder);
    const auto result = pipewright(words + "--" + name + " -", folder);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, file.out) << name;
    // What would stand there is not lost.
    EXPECT_THAT(result.err, HasSubstr("bubble")) << name;
    EXPECT_EQ(result.err.find("wrote -"), std::string::npos);
  }
  EXPECT_EQ(pipewright("schedules export 1f1b -p 2 -m 2 -o -", folder).out,
            pipewright("schedules export 1f1b -p 2 -m 2", folder).out);
  EXPECT_EQ(pipewright("export " + kPlan + " --format pytorch-csv -o -", folder).out,
            pipewright("export " + kPlan + " --format pytorch-csv", folder).out);
  const auto tuned = pipewright("tune " PIPEWRIGHT_SOURCE_DIR "/examples/job.json -o -", folder);
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_EQ(json::parse(tuned.out).at("schema"), "pipewright.plan/1");
  EXPECT_THAT(tuned.err, HasSubstr("configurations simulated"));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a.html", "a.json", "a.svg"}));
}

TEST(StandardOutput, HoldsOneFileAndNothingBesides) {
  const Folder folder;
  const std::string words = "simulate -s 1f1b -p 2 -m 2 ";
  for (const std::string& both : {words + "--svg - --html -", words + "--trace - --json",
                                  "check " + kPlan + " --svg - --json"}) {
    const auto result = pipewright(both, folder);
    EXPECT_EQ(result.status, 2) << both;
    EXPECT_EQ(result.out, "") << both;
    EXPECT_THAT(result.err, HasSubstr("both want standard output")) << both;
  }
  for (const std::string& place :
       {std::string("demo --out -"), "run " + kPlan + " --save-checkpoint -",
        std::string("tune " PIPEWRIGHT_SOURCE_DIR "/examples/job.json --resume -")}) {
    const auto result = pipewright(place, folder);
    EXPECT_EQ(result.status, 2) << place;
    EXPECT_THAT(result.err, HasSubstr("give a name")) << place;
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(Names, Zbh1IsTheSchedulesOwnNameOnACommandLine) {
  const Folder folder;
  for (const char* name : {"zbh1", "ZBH1", "ZbH1"}) {
    const auto shown = pipewright(std::string("schedules show ") + name + " --json", folder);
    EXPECT_EQ(json::parse(shown.out).at("name"), "zb-h1");
    EXPECT_THAT(shown.err, StartsWith(std::string(name) + " is taken as zb-h1"));
    EXPECT_THAT(shown.err, HasSubstr("paddle-zbh1"));
  }
  EXPECT_EQ(pipewright("schedules export zbh1 -p 4 -m 8", folder).out,
            pipewright("schedules export zb-h1 -p 4 -m 8", folder).out);
  EXPECT_EQ(result_of("simulate -s zbh1 -p 4 -m 8", folder),
            result_of("simulate -s zb-h1 -p 4 -m 8", folder));
  EXPECT_EQ(result_of("compare zbh1 -p 4 -m 8", folder).at("schedules")[0].at("schedule"), "zb-h1");
  // Nothing is said where nothing is doubtful.
  EXPECT_EQ(pipewright("schedules show PaddleZBH1 --json", folder).err, "");
  EXPECT_EQ(result_of("schedules show paddle-zbh1", folder).at("name"), "paddle-zbh1");
}

TEST(Names, InAJobZbh1IsPaddles) {
  const Folder folder;
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": "gpt-tiny",
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 8,
      "strategy": {"pp_degree": 2, "accumulate_steps": 8, "schedule_mode": "ZBH1"}})");
  const auto tuned = pipewright("tune job.json --json --no-synthesis", folder);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_EQ(json::parse(tuned.out).at("best").at("schedule"), "paddle-zbh1");
}

TEST(Rows, TheFirstWordsOfTheComplaintAreTheFileAndTheRow) {
  const Folder folder;
  ASSERT_EQ(
      shell("$PW schedules export 1f1b -p 4 -m 8 > good.csv && (cat good.csv; tail -1 good.csv) "
            "> a.csv && head -c -20 good.csv > cut.csv",
            folder)
          .status,
      0);
  const json many = result_of("check a.csv", folder), cut = result_of("check cut.csv", folder);
  EXPECT_EQ(many.at("verdict"), "invalid");
  ASSERT_EQ(many.at("problems").size(), 1U);
  EXPECT_THAT(many.at("problems")[0].get<std::string>(), StartsWith("a.csv, row 5: "));
  ASSERT_EQ(cut.at("problems").size(), 1U);
  EXPECT_THAT(cut.at("problems")[0].get<std::string>(), StartsWith("cut.csv, row 4: "));
  EXPECT_EQ(pipewright("simulate a.csv", folder).status, 1);
  EXPECT_THAT(pipewright("analyze a.csv", folder).err,
              StartsWith("pipewright analyze: a.csv, row 5: "));
  EXPECT_THAT(pipewright("run a.csv", folder).err, StartsWith("pipewright run: a.csv, row 5: "));
}

TEST(Rows, InAnotherOrderThanTheStagesAreWorthANote) {
  const Folder folder;
  folder.write("swapped.csv", "1F0,1B0,1F1,1B1\n0F0,0F1,0B0,0B1\n");
  const json swapped = result_of("check swapped.csv", folder);
  EXPECT_EQ(swapped.at("verdict"), "ok");
  ASSERT_EQ(swapped.at("notes").size(), 1U);
  EXPECT_THAT(swapped.at("notes")[0].get<std::string>(),
              StartsWith("the list of rank 1 computes stage 0"));
  for (const char* words : {"check -s 1f1b -p 2 -m 4", "check -s dualpipe -p 4 -m 8",
                            "check -s interleaved -p 2 -m 4 -v 2", "check -s zbv -p 4 -m 8"}) {
    EXPECT_TRUE(result_of(words, folder).at("notes").empty()) << words;
  }
}

TEST(EstimateFlags, TakesAModelThatIsATransformer) {
  const Folder folder;
  folder.write("model.json", R"({"schema": "pipewright.model/1", "name": "mine", "transformer":
      {"hidden": 2048, "layers": 24, "heads": 16, "vocabulary": 50304, "sequence": 2048}})");
  folder.write("same.json", R"({"schema": "pipewright.architecture/1", "name": "mine",
      "hidden": 2048, "layers": 24, "heads": 16, "vocabulary": 50304, "sequence": 2048, "tied_head": false})");
  folder.write("layers.json",
               R"({"schema": "pipewright.model/1", "name": "mlp", "preset": "mlp"})");
  folder.write("job.json", R"({"schema": "pipewright.job/1"})");
  const std::string rest = " --devices 16 --global-batch 256";
  const json model = result_of("estimate model.json" + rest, folder);
  const json same = result_of("estimate same.json" + rest, folder);
  EXPECT_EQ(model.at("ranked"), same.at("ranked"));
  EXPECT_FALSE(model.at("ranked").empty());
  EXPECT_EQ(pipewright("estimate gpt-tiny --devices 8 --global-batch 64", folder).status, 0);
  const auto layers = pipewright("estimate layers.json" + rest, folder);
  EXPECT_EQ(layers.status, 2);
  EXPECT_THAT(layers.err, HasSubstr("no transformer"));
  EXPECT_THAT(layers.err, HasSubstr("pipewright tune"));
  const auto job = pipewright("estimate job.json" + rest, folder);
  EXPECT_EQ(job.status, 2);
  EXPECT_THAT(job.err, HasSubstr("pipewright tune job.json"));
}

}  // namespace cli_flags_test
}  // namespace pipewright::test
