// pipewright partition: what it prints, its exit status, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace cli_partition_test {

/// Four operators in a row, of 3, 3, 2 and 4; what leaves each costs 1.
constexpr const char* kChain = R"({"maxSizePerFPGA": 2, "maxFPGAs": 2, "maxCPUs": 0,
  "nodes": [
   {"id": 1, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 3, "isBackwardNode": 0, "size": 1},
   {"id": 2, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 3, "isBackwardNode": 0, "size": 1},
   {"id": 3, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 2, "isBackwardNode": 0, "size": 1},
   {"id": 4, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 4, "isBackwardNode": 0, "size": 1}],
  "edges": [{"sourceId": 1, "destId": 2, "cost": 1}, {"sourceId": 2, "destId": 3, "cost": 1},
            {"sourceId": 3, "destId": 4, "cost": 1}]})";

constexpr const char* kProfile = R"({"small": {"states": 2, "cumulative_compute_s": [1, 4],
  "cumulative_parameter_bytes": [0, 0], "output_activation_bytes": [0.1, 0],
  "predecessors": "all_lower"}})";

Json partition_of(const CommandResult& result) {
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  EXPECT_GE(document.at("elapsed_ns").get<std::int64_t>(), 0);
  return document.at("partition");
}

TEST(Partition, SaysWhereEachOperatorIsAndThatNoSplitIsBetter) {
  const Folder folder;
  folder.write("graph.json", kChain);
  const auto result = pipewright("partition graph.json --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json partition = partition_of(result);
  EXPECT_EQ(partition.at("verdict"), "optimal");
  EXPECT_EQ(partition.at("largest_load"), 7.0);
  EXPECT_EQ(partition.at("lower_bound"), 7.0);
  EXPECT_EQ(partition.at("devices").at(0).at("nodes"), Json({1, 2}));
  EXPECT_EQ(partition.at("devices").at(1).at("nodes"), Json({3, 4}));
  const auto text = pipewright("partition graph.json", folder);
  EXPECT_NE(text.out.find("device 0 holds 1-2\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("largest load 7, optimal"), std::string::npos) << text.out;
}

TEST(Partition, ReadsStandardInputAndGivesABoundWhereTheGraphIsTooWide) {
  const Folder folder;
  folder.write("graph.json", kChain);
  const auto result = shell("$PW partition - --ideals 2 --json < graph.json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json partition = partition_of(result);
  EXPECT_EQ(partition.at("method"), "chain");
  EXPECT_EQ(partition.at("largest_load"), 7.0);  // a chain is its own one order
  EXPECT_EQ(partition.at("lower_bound"), 6.0);   // twelve shared by two
  EXPECT_NEAR(partition.at("gap").get<double>(), 1.0 / 7, 1e-12);
}

TEST(Partition, SaysNoWhereTheMemoryDoesNotSuffice) {
  const Folder folder;
  Json graph = Json::parse(kChain);
  graph["maxSizePerFPGA"] = 1;
  folder.write("graph.json", graph.dump());
  const auto result = pipewright("partition graph.json --json", folder);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(partition_of(result).at("verdict"), "infeasible");
  EXPECT_NE(result.err.find("no split fits: 2 accelerators of 1"), std::string::npos) << result.err;
}

TEST(Partition, SplitsAPipeDreamProfileIntoStagesWithReplicas) {
  const Folder folder;
  folder.write("profiles.json", kProfile);
  const std::string machines = "partition profiles.json --machines 2 --bandwidth 1GB/s";
  const auto result = pipewright(machines + " --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json partition = partition_of(result);
  EXPECT_EQ(partition.at("per_stage_s"), 2.0);
  EXPECT_EQ(partition.at("speedup"), 2.0);
  EXPECT_EQ(partition.at("stages").at(0).at("replicas"), 2);
  const auto straight = pipewright(machines + " --straight --model small", folder);
  EXPECT_NE(straight.out.find("slowest stage 3.00 s"), std::string::npos) << straight.out;
  const auto many =
      pipewright("partition profiles.json --machines 3 --bandwidth 1GB/s --straight", folder);
  EXPECT_EQ(many.status, 1) << many.err;
}

TEST(Partition, RefusesInWords) {
  const Folder folder;
  folder.write("graph.json", kChain);
  folder.write("profiles.json", kProfile);
  folder.write("other.json", R"({"schema": "pipewright.plan/1"})");
  const auto refused = [&](const std::string& words, const std::string& says) {
    const auto result = pipewright("partition " + words, folder);
    EXPECT_EQ(result.status, 2) << words;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.out.empty());
  };
  refused("nowhere.json", "nowhere.json");
  refused("other.json", "/schema");
  refused("graph.json --machines 4", "--machines belongs to a PipeDream profile");
  refused("graph.json --ideals 0", "--ideals");
  refused("profiles.json", "needs --machines and --bandwidth");
  refused("profiles.json --machines 2,2 --bandwidth 1GB/s", "--machines has 2 levels");
  refused("profiles.json --machines 2 --bandwidth fast", "--bandwidth");
  refused("profiles.json --machines 2 --bandwidth 1GB/s --model big", "expected one of small");
}

}  // namespace cli_partition_test
}  // namespace pipewright::test
