// Clusters of several kinds of nodes, and Paddle's, where the command takes a cluster.
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_clusters_test {

constexpr const char* kPaddle = R"({"machines": [
  {"hostname": "a", "addr": "10.0.0.1", "port": "1", "links": [
    {"source_global_id": 0, "target_global_id": 1, "type": "NVL", "bandwidth": 235}], "devices": [
    {"global_id": 0, "local_id": 0, "type": "GPU", "model": "A100-SXM4-80GB", "memory": 80,
     "hp_gflops": 312000},
    {"global_id": 1, "local_id": 1, "type": "GPU", "model": "A100-SXM4-80GB", "memory": 80,
     "hp_gflops": 312000}]}]})";

constexpr const char* kMixed = R"({"schema": "pipewright.cluster/1", "name": "mixed",
  "devices_per_node": 8,
  "node_kinds": [{"nodes": 1, "preset": "dgx-a100-40gb"}, {"nodes": 1, "preset": "dgx-h100"}]})";

TEST(Clusters, EstimateReadsPaddlesFileAndSaysWhatItAssumed) {
  const Folder folder;
  folder.write("paddle.json", kPaddle);
  const auto result =
      pipewright("estimate megatron-1.7b --cluster paddle.json --global-batch 8 --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("assumed of the cluster: memory"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("there is no alpha_latency"), std::string::npos) << result.err;
}

TEST(Clusters, NodesThatDifferAreFasterThanAllOfTheSlowerKindAndSlowerThanAllOfTheFaster) {
  const Folder folder;
  folder.write("mixed.json", kMixed);
  const auto step = [&](const std::string& cluster) {
    const auto result = pipewright(
        "estimate megatron-3.6b --global-batch 64 --tp 8 --pp 2 --json --cluster " + cluster,
        folder);
    EXPECT_EQ(result.status, 0) << result.err;
    return Json::parse(result.out).at("best").at("step_ns").get<double>();
  };
  const double mixed = step("mixed.json");
  EXPECT_LE(mixed, step("dgx-a100-40gb --devices 16"));
  EXPECT_GT(mixed, step("dgx-h100 --devices 16"));
}

TEST(Clusters, AJobOnPaddlesClusterMakesAPlanWithTheClusterInFull) {
  const Folder folder;
  folder.write("paddle.json", kPaddle);
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": "mlp",
    "cluster": "paddle.json", "global_batch": 8, "tuner_save_path": "plan.json"})");
  const auto tuned = pipewright("tune job.json", folder);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_NE(tuned.err.find("assumed of the cluster"), std::string::npos) << tuned.err;
  const Json plan = parse_json(read_text((folder.path() / "plan.json").string()), "plan.json");
  EXPECT_EQ(plan.at("cluster").at("device").at("model"), "A100-SXM4-80GB");
  EXPECT_EQ(pipewright("simulate plan.json", folder).status, 0);
}

TEST(Clusters, AJobOnNodesThatDifferIsPlannedAndItsPlanReadBack) {
  const Folder folder;
  folder.write("mixed.json", kMixed);
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": "mlp",
    "cluster": "mixed.json", "global_batch": 16, "strategy": {"pp_degree": 2},
    "tuner_save_path": "plan.json"})");
  ASSERT_EQ(pipewright("tune job.json", folder).status, 0);
  const auto simulated = pipewright("simulate plan.json --json", folder);
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  const Json plan = parse_json(read_text((folder.path() / "plan.json").string()), "plan.json");
  EXPECT_EQ(plan.at("cluster").at("node_kinds").size(), 2U);
  EXPECT_NE(plan.at("cluster_fingerprint").get<std::string>().find("; cuda NVIDIA H100"),
            std::string::npos);
}

}  // namespace cli_clusters_test
}  // namespace pipewright::test
