// pipewright plan: an own order becomes a plan that simulate, check, export and run take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace cli_plan_test {

using ::testing::HasSubstr;

std::string example(const char* name) {
  return std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/" + name;
}

TEST(PlanCommand, GoesFromAnOrderToATrainedStep) {
  const Folder folder;
  const auto made = pipewright(
      "plan --model gpt-tiny --cluster local-cpu --order " + example("order.csv") + " -o plan.json",
      folder);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("An order of your own: "));
  EXPECT_THAT(made.err, HasSubstr("wrote plan.json; next: pipewright simulate plan.json"));
  for (const char* command :
       {"simulate plan.json", "check plan.json", "export plan.json --format pytorch-csv"}) {
    const auto result = pipewright(command, folder);
    EXPECT_EQ(result.status, 0) << command << "\n" << result.err;
  }
  const auto run = pipewright("run plan.json --steps 1 --numerics exact --verify --data " +
                                  std::string(PIPEWRIGHT_SOURCE_DIR) + "/README.md",
                              folder);
  EXPECT_EQ(run.status, 0) << run.out << run.err;
}

TEST(PlanCommand, PrintsOneDocument) {
  const Folder folder;
  const auto result = pipewright(
      "plan --model gpt-tiny --cluster local-cpu --json --order " + example("order.csv"), folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  EXPECT_EQ(document.at("plan").at("schedule").at("name"), "custom");
  EXPECT_TRUE(document.at("over_memory").empty());
}

TEST(PlanCommand, SaysWhatItNeeds) {
  const Folder folder;
  const auto says = [&](const std::string& flags) {
    const auto result = pipewright("plan " + flags, folder);
    EXPECT_EQ(result.status, 2) << flags;
    return result.err;
  };
  const std::string order = " --order " + example("order.csv");
  EXPECT_THAT(says("--model gpt-tiny --cluster local-cpu"), HasSubstr("missing --order"));
  EXPECT_THAT(says("--model gpt-tiny" + order), HasSubstr("--model and --cluster"));
  EXPECT_THAT(says(example("job.json") + " --model gpt-tiny" + order),
              HasSubstr("leave out --model"));
  EXPECT_THAT(says("--model gpt-tinny --cluster local-cpu" + order), HasSubstr("gpt-tiny"));
  EXPECT_THAT(says("--model gpt-tiny --cluster local-cpu --layers 1,x" + order),
              HasSubstr("--layers"));
  folder.write("short.json",
               R"({"schema": "pipewright.order/1", "ranks": [["0F0"], ["1F0", "1B0"]]})");
  EXPECT_THAT(says("--model gpt-tiny --cluster local-cpu --order short.json"),
              HasSubstr("the backward of stage 0 for micro-batch 0 is missing: 0B0"));
}

TEST(PlanCommand, OfAnOrderThatHangsSaysWhyAndWritesNothing) {
  const Folder folder;
  pipewright("schedules export 1f1b -p 4 -m 8 -o hangs.csv", folder);
  const auto result = pipewright(
      "plan --model gpt-tiny --cluster dgx-a100 --order hangs.csv --post deferred --issue inline "
      "-o plan.json",
      folder);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("DEADLOCK"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "plan.json"));
}

}  // namespace cli_plan_test
}  // namespace pipewright::test
