// pipewright estimate: what it prints, and what it refuses.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_estimate_test {

using nlohmann::json;

TEST(Estimate, RanksWhatFitsAndAccountsForTheRest) {
  const Folder folder;
  const auto result = pipewright(
      "estimate llama3-8b --cluster dgx-h100 --devices 16 --global-batch 64 --json --top 5",
      folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const json r = json::parse(result.out);
  ASSERT_EQ(r.at("ranked").size(), 5U);
  EXPECT_EQ(r.at("ranked").at(0), r.at("best"));
  std::int64_t counted = r.at("evaluated");
  for (const auto& [reason, count] : r.at("pruned").items()) counted += count.get<std::int64_t>();
  EXPECT_EQ(counted, r.at("configurations"));
  for (std::size_t k = 0; k < 5; ++k) {
    const json& one = r.at("ranked").at(k);
    EXPECT_EQ(one.at("tp").get<int>() * one.at("pp").get<int>() * one.at("dp").get<int>() *
                  one.at("cp").get<int>(),
              16);
    EXPECT_LE(one.at("peak_bytes").get<double>(), 0.94 * 80 * 1024.0 * 1024 * 1024);
    EXPECT_GE(one.at("step_ns"), r.at("best").at("step_ns"));
  }
}

TEST(Estimate, TriesOnlyWhatIsFixed) {
  const Folder folder;
  const auto result = pipewright(
      "estimate gpt3-175b --devices 64 --global-batch 64 --framework megatron-lm --tp 8 --pp 8 "
      "--micro-batch-size 1 --recompute full,selective --sequence-parallel on --zero 0 --json",
      folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const json ranked = json::parse(result.out).at("ranked");
  for (const json& one : ranked) {
    EXPECT_EQ(one.at("tp"), 8);
    EXPECT_NE(one.at("recompute"), "none");
    EXPECT_EQ(one.at("sequence_parallel"), true);
  }
}

/// The first rank has the slowest stage: fewer blocks on it make a step shorter.
TEST(Estimate, TakesTheBlocksOfEachRank) {
  const Folder folder;
  const auto step = [&](const std::string& blocks) {
    const auto result = pipewright(
        "estimate llama3-8b --devices 8 --global-batch 64 --tp 2 --blocks " + blocks +
            " --vpp 1 --micro-batch-size 1 --zero 1 --recompute none --sequence-parallel on --json",
        folder);
    EXPECT_EQ(result.status, 0) << result.err;
    const json best = json::parse(result.out).at("best");
    EXPECT_EQ(best.at("pp"), 4);
    return best.at("step_ns").get<long>();
  };
  EXPECT_LT(step("8,8,8,8"), step("11,7,7,7"));
  EXPECT_LT(step("8,9,9,6"), step("8,8,8,8"));  // the head is on the last
  const auto refusal_of = [&](const std::string& more) {
    const auto result =
        pipewright("estimate llama3-8b --devices 8 --global-batch 64 " + more, folder);
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  EXPECT_NE(refusal_of("--blocks 8,8,8").find("32 blocks on all ranks"), std::string::npos);
  EXPECT_NE(refusal_of("--pp 2 --blocks 8,8,8,8").find("4 pipeline ranks"), std::string::npos);
}

TEST(Estimate, ReadsAModelAndAClusterFromFiles) {
  const Folder folder;
  std::ofstream(folder.path() / "small.json")
      << R"({"schema": "pipewright.architecture/1", "hidden": 1024, "layers": 8, "heads": 16,
             "kv_heads": 4, "gated": true, "vocabulary": 32000, "sequence": 1024})";
  std::ofstream(folder.path() / "two.json")
      << R"({"schema": "pipewright.cluster/1", "preset": "dgx-b200", "devices": 8})";
  const auto result =
      pipewright("estimate small.json --cluster two.json --global-batch 32 --exhaustive", folder);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("less memory for more time:"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("configurations estimated in"), std::string::npos);
}

TEST(Estimate, ReadsAFrameworkFromAFile) {
  const Folder folder;
  std::ofstream(folder.path() / "slow.json")
      << R"({"schema": "pipewright.framework/1", "name": "slow", "like": "megatron-core",
             "step_overhead_seconds": 5})";
  const auto step = [&](const std::string& framework) {
    const auto result = pipewright(
        "estimate llama3-8b --cluster dgx-h100 --global-batch 32 --json "
        "--framework " +
            framework,
        folder);
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out).at("best").at("step_ns").get<double>();
  };
  EXPECT_NEAR(step("slow.json") - step("megatron-core"), 5e9 - 3e6, 2);
  const auto unknown =
      pipewright("estimate llama3-8b --global-batch 32 --framework megatron-cor", folder);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("did you mean \"megatron-core\"?"), std::string::npos) << unknown.err;
}

TEST(Estimate, SaysNoWhereNothingFitsAndRefusesInWords) {
  const Folder folder;
  const auto large = pipewright("estimate gpt3-175b --devices 8 --global-batch 8", folder);
  EXPECT_EQ(large.status, 1) << large.err;
  EXPECT_NE(large.out.find("left out: over memory"), std::string::npos) << large.out;
  EXPECT_NE(large.err.find("no configuration fits"), std::string::npos) << large.err;
  const auto batch = pipewright("estimate gpt3-175b --devices 8", folder);
  EXPECT_EQ(batch.status, 2);
  EXPECT_NE(batch.err.find("missing --global-batch"), std::string::npos) << batch.err;
  const auto kind = pipewright("estimate gpt3-175b --global-batch 8 --recompute some", folder);
  EXPECT_EQ(kind.status, 2);
  EXPECT_NE(kind.err.find("expected some of none, selective, full, found \"some\""),
            std::string::npos)
      << kind.err;
  const auto zero = pipewright("estimate gpt3-175b --global-batch 8 --tp 0", folder);
  EXPECT_EQ(zero.status, 2) << zero.err;
}

/// What it leaves out it says.
TEST(Estimate, KnowsNoSlowDevices) {
  const Folder folder;
  folder.write("slow.json", R"({"schema": "pipewright.cluster/1", "preset": "dgx-a100",
                                "slow": [{"device": 1, "factor": 2}]})");
  const auto refused =
      pipewright("estimate llama3-8b --cluster slow.json --global-batch 32", folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("leave \"slow\" out"), std::string::npos) << refused.err;
}

}  // namespace cli_estimate_test
}  // namespace pipewright::test
