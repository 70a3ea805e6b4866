// pipewright export: files, notes and exit statuses.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace cli_export_test {

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

/// Without REDUCE_GRAD PyTorch trains with gradients as many times too large as there are
/// micro-batches, and says nothing.
TEST(Export, OfAPipelineThatIsNoTransformerSaysWhoDoesNotTakeIt) {
  const Folder folder;
  ASSERT_EQ(write_small_job(folder).status, 0);
  for (const char* format : {"megatron", "torchtitan", "paddle-tuner"}) {
    const auto refused = pipewright(std::string("export plan.json --format ") + format, folder);
    EXPECT_EQ(refused.status, 1) << format;
    EXPECT_NE(refused.err.find("transformer"), std::string::npos) << refused.err;
  }
}

TEST(SchedulesExport, CommsHasAllThatTheReleasePerforms) {
  const Folder folder;
  const std::string sizes = "schedules export 1f1b -p 2 -m 2 --comms";
  const auto plain = pipewright(sizes, folder);
  EXPECT_EQ(plain.out,
            "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n");
  EXPECT_NE(plain.err.find("PyTorch 2.13"), std::string::npos) << plain.err;
  EXPECT_EQ(pipewright(sizes + " --torch 2.13", folder).out, plain.out);
  const std::string newer = pipewright(sizes + " --torch 2.15", folder).out;
  EXPECT_NE(newer.find("0B0,0WAIT_SEND_F0,0RECV_B1"), std::string::npos) << newer;
  EXPECT_NE(newer.find("1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1\n"),
            std::string::npos)
      << newer;
  const std::string none = pipewright(sizes + " --torch none", folder).out;
  EXPECT_TRUE(none.starts_with("0F0,0SEND_F0,")) << none;
  EXPECT_EQ(none.find("REDUCE_GRAD"), std::string::npos) << none;
  // What is written is read, and ends.
  folder.write("o.csv", newer);
  EXPECT_EQ(pipewright("check o.csv --preset torch", folder).status, 0);
  EXPECT_EQ(pipewright("run o.csv --device paced --cost F=10us,B=20us", folder).status, 0);
}

TEST(SchedulesExport, RefusesWhatPyTorchHasNotAndWritesItForItself) {
  const Folder folder;
  const std::string sizes = "schedules export pipedream -p 2 -m 4 --comms";
  const auto refused = pipewright(sizes, folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--torch none"), std::string::npos) << refused.err;
  EXPECT_EQ(pipewright(sizes + " --torch none", folder).status, 0);
  EXPECT_EQ(pipewright(sizes + " --format json", folder).status, 0);
  EXPECT_EQ(pipewright("schedules export 1f1b -p 2 -m 4 --torch 2.15", folder).status, 2);
  EXPECT_EQ(pipewright("export " + example() + " --format paddle --torch 2.15", folder).status, 2);
}

}  // namespace cli_export_test
}  // namespace pipewright::test
