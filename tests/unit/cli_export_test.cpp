// pipewright export: files, notes and exit statuses.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace {

std::string example() { return std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/plan.json"; }

Json export_of(const CommandResult& result) {
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  return document.at("export");
}

TEST(Export, PrintsTheFileAndItsNotesApart) {
  const Folder folder;
  const auto result = pipewright("export " + example() + " --format deepspeed", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("train_batch_size"), 16);
  EXPECT_NE(result.err.find("note: PipelineModule"), std::string::npos) << result.err;
  const auto quiet = pipewright("export " + example() + " --format deepspeed -q", folder);
  EXPECT_TRUE(quiet.err.empty()) << quiet.err;
}

TEST(Export, WritesAFileWhichBashCanSource) {
  const Folder folder;
  const auto written = pipewright("export " + example() + " --format megatron -o flags.sh", folder);
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_TRUE(written.out.empty());
  const auto sourced =
      shell("bash -uc '. ./flags.sh && echo \"${#PARALLEL_ARGS[@]} ${PARALLEL_ARGS[5]}\"'", folder);
  EXPECT_EQ(sourced.out, "6 Ett|ttL\n") << sourced.err;
}

TEST(Export, GivesAScriptContentsAndNotes) {
  const Folder folder;
  const Json paddle =
      export_of(pipewright("export " + example() + " --format paddle --json", folder));
  EXPECT_EQ(paddle.at("contents").at("pipeline").at("pp_degree"), 2);
  EXPECT_EQ(paddle.at("verdict"), "ok");
  const Json csv =
      export_of(pipewright("export " + example() + " --format pytorch-csv --json", folder));
  EXPECT_TRUE(csv.at("contents").get<std::string>().starts_with("0F0,"));
}

TEST(Export, SaysNoWhereTheToolCannotAndRefusesInWords) {
  const Folder folder;
  std::ifstream file(example());
  Json plan = Json::parse(file);
  plan["schedule"]["name"] = "gpipe";
  folder.write("gpipe.json", plan.dump());
  const auto impossible = pipewright("export gpipe.json --format megatron --json", folder);
  EXPECT_EQ(impossible.status, 1);
  EXPECT_EQ(export_of(impossible).at("verdict"), "impossible");
  EXPECT_NE(impossible.err.find("schedule is gpipe"), std::string::npos) << impossible.err;
  const auto unwritten = pipewright("export gpipe.json --format megatron -o flags.sh", folder);
  EXPECT_EQ(unwritten.status, 1);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"gpipe.json"});
  const auto missing = pipewright("export gpipe.json", folder);
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("missing --format"), std::string::npos) << missing.err;
  const auto unknown = pipewright("export gpipe.json --format megatorn", folder);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(pipewright("export nowhere.json --format paddle", folder).status, 2);
}

}  // namespace
}  // namespace pipewright::test
