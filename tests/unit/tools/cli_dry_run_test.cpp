// run --dry-run: what GPUs would be given, on a machine without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_dry_run_test {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kNccl = "run -s 1f1b -p 4 -m 8 --transport nccl --dry-run ";
constexpr const char* kHang = "run -s paddle-vpp --jobs fused -p 4 -m 8 -v 2 --preset torch-pair ";

TEST(DryRun, ShowsEachRanksCallsAndJudgesThem) {
  const Folder folder;
  const auto result = pipewright(std::string(kNccl) + "--message-bytes 1MiB", folder);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0 edge 0 to 1, at most 4 CTAs"));
  EXPECT_THAT(result.out, HasSubstr("ncclSend 0SEND_F0, peer 1, 262144 float32, edge 0 to 1"));
  EXPECT_THAT(result.out, HasSubstr("the calls, read back: ok\n"));
}

TEST(DryRun, SaysTheSameInJson) {
  const Folder folder;
  const auto result = pipewright(std::string(kNccl) + "--json", folder);
  EXPECT_EQ(result.status, 0) << result.err;
  const json fields = json::parse(result.out);
  EXPECT_EQ(fields.at("verdict"), "ok");
  EXPECT_EQ(fields.at("communicators").size(), 6U);
  EXPECT_EQ(fields.at("warm_ups").size(), 6U);
  EXPECT_EQ(fields.at("policy").size(), 9U);
  const json& second = fields.at("ranks").at(1);
  EXPECT_EQ(second.at("communicators"), json::parse("[0, 1, 2, 3]"));
  int sends = 0;
  for (const json& call : second.at("calls")) sends += call.at("call") == "ncclSend" ? 1 : 0;
  EXPECT_EQ(sends, 16);
}

TEST(DryRun, ShowsAsHostsWhatExactNumericsDoNotCall) {
  const Folder folder;
  folder.write("order.csv",
               "0F0,0B0,0REDUCE_GRAD,REDUCE_NORM,OPT\n0F1,0B1,0REDUCE_GRAD,REDUCE_NORM,OPT\n");
  const std::string words = "run order.csv --transport nccl --dry-run";
  EXPECT_THAT(pipewright(words, folder).out, HasSubstr("ncclAllReduce REDUCE_NORM, 1 float64"));
  const auto exact = pipewright(words + " --numerics exact", folder);
  EXPECT_EQ(exact.status, 0) << exact.err;
  EXPECT_THAT(exact.out, HasSubstr("hosts 0REDUCE_GRAD, stream \"collectives\", after 0B1\n"));
  EXPECT_THAT(exact.out, HasSubstr("hosts REDUCE_NORM"));
  EXPECT_THAT(exact.out, testing::Not(HasSubstr("ncclAllReduce")));
  EXPECT_THAT(exact.out, HasSubstr("the calls, read back: ok\n"));
}

TEST(DryRun, ShowsTheCycleOfCallsThatWouldHang) {
  const Folder folder;
  for (const char* where : {"--transport nccl", "--device cuda"}) {
    const auto result = pipewright(std::string(kHang) + where + " --dry-run", folder);
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_THAT(result.out, HasSubstr("DEADLOCK"));
    EXPECT_THAT(result.out, HasSubstr("waits for rank"));
  }
}

TEST(DryRun, ShowsTheOrderForOneGpuAndTheDelayOfASlowLink) {
  const Folder folder;
  const std::string words =
      "run -s gpipe -p 2 -m 1 --device cuda --dry-run --message-bytes 25MB --slow-link 25GB/s";
  const auto result = pipewright(words, folder);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 0SEND_F0, after 0F0, held for 1.00 ms\n"));
  const json fields = json::parse(pipewright(words + " --json", folder).out);
  EXPECT_EQ(fields.at("issue_order").at(1).at("held_ns"), 1'000'000);
}

TEST(DryRun, RefusesWhatNcclCannotGiveInWords) {
  const Folder folder;
  const auto tags = pipewright(std::string(kNccl) + "--preset ideal", folder);
  EXPECT_EQ(tags.status, 2);
  EXPECT_THAT(tags.err,
              HasSubstr("NCCL matches the sends and receives of two ranks by their order"));
  const auto cpu = pipewright("run -s gpipe -p 2 -m 1 --dry-run", folder);
  EXPECT_EQ(cpu.status, 2);
  EXPECT_THAT(cpu.err, HasSubstr("add --transport nccl"));
  const auto slow = pipewright("run -s gpipe -p 2 -m 1 --slow-link 25GB/s", folder);
  EXPECT_EQ(slow.status, 2);
  EXPECT_THAT(slow.err, HasSubstr("--slow-link belongs to --device cuda"));
  const auto graph = pipewright("run -s gpipe -p 2 -m 1 --cuda-graph", folder);
  EXPECT_EQ(graph.status, 2);
  EXPECT_THAT(graph.err, HasSubstr("--cuda-graph belongs to --device cuda"));
  const auto both =
      pipewright("run -s gpipe -p 2 -m 1 --device cuda --cuda-graph --no-cuda-graph", folder);
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("take one of them"));
  const auto sealed = pipewright("run -s gpipe -p 2 -m 1 --device cuda --verify-payloads", folder);
  EXPECT_EQ(sealed.status, 2);
  EXPECT_THAT(sealed.err, HasSubstr("messages on GPUs carry no checksum"));
  const auto mixed = pipewright("run -s gpipe -p 2 -m 1 --transport nccl --device cpu", folder);
  EXPECT_EQ(mixed.status, 2);
  EXPECT_THAT(mixed.err, HasSubstr("--transport nccl is between GPUs"));
}

TEST(Doctor, SaysWhatThisMachineHasForGpus) {
  const Folder folder;
  const json fields = json::parse(pipewright("doctor --json", folder).out);
  const json& gpu = fields.at("gpu");
  EXPECT_TRUE(gpu.at("gpus").is_array());
  if (gpu.at("why_no_gpu").is_null()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_TRUE(gpu.at("gpus").empty());
  const auto run = pipewright("run -s gpipe -p 2 -m 1 --device cuda", folder);
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr(gpu.at("why_no_gpu").get<std::string>()));
}

}  // namespace cli_dry_run_test
}  // namespace pipewright::test
