// The orders of a cluster's kinds of nodes, and what a plan makes of them.
#include "core/cluster/node_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/model/architecture_model.hpp"
#include "planner/plans/difference.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/search.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace node_order_test {

using Orders = std::vector<NodeOrder>;

/// One kind for each letter, "A" for A100, "V" for V100, with so many nodes.
Cluster cluster_of(const std::string& letters, int nodes = 1) {
  Cluster cluster;
  cluster.name = letters;
  cluster.devices_per_node = 8;
  for (const char letter : letters) {
    const Cluster one = cluster_preset(letter == 'A'   ? "dgx-a100"
                                       : letter == 'V' ? "dgx-v100"
                                       : letter == 'H' ? "dgx-h100"
                                       : letter == 'B' ? "dgx-b200"
                                                       : "dgx-h200");
    cluster.kinds.push_back({nodes, one.device, one.inside, one.across});
  }
  summarise_kinds(cluster);
  return cluster;
}

TEST(NodeOrders, EqualNodesHaveOneOrder) {
  EXPECT_EQ(node_orders(cluster_preset("dgx-a100", 32)), (Orders{{}}));
  EXPECT_EQ(node_orders(cluster_of("AA")), (Orders{{}}));
}

TEST(NodeOrders, TheFilesOrderIsFirstAndComesOnce) {
  EXPECT_EQ(node_orders(cluster_of("AV")), (Orders{{}, {1, 0}}));
  EXPECT_EQ(node_orders(cluster_of("AVH")),
            (Orders{{}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}));
}

TEST(NodeOrders, AKindThatStandsTwiceIsOneBlockInAllButTheFilesOrder) {
  EXPECT_EQ(node_orders(cluster_of("AVA")), (Orders{{}, {0, 1}, {1, 0}}));
  EXPECT_EQ(nodes_in_order(cluster_of("AVA", 2), {0, 1}), (std::vector<int>{0, 1, 4, 5, 2, 3}));
  EXPECT_EQ(nodes_in_order(cluster_of("AVA", 2), {}), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(NodeOrders, MoreThanFourKindsStayAsTheyAre) {
  EXPECT_EQ(node_orders(cluster_of("AVHB")).size(), 24U);
  EXPECT_EQ(node_orders(cluster_of("AVHB2")), (Orders{{}}));
}

TEST(NodeOrders, AreReadAsTheyAreWritten) {
  const Cluster cluster = cluster_of("AVH");
  for (const NodeOrder& order : node_orders(cluster))
    EXPECT_EQ(read_node_order(cluster, to_text(order)), order);
  EXPECT_EQ(test::refusal([&] { read_node_order(cluster_of("AV"), "0-2"); }).message(),
            "expected an order of the nodes' kinds, file, 1-0, found \"0-2\"");
  EXPECT_EQ(in_words(cluster, {2, 0, 1}),
            "the NVIDIA H100-SXM5-80GB first, then the NVIDIA A100-SXM4-80GB, then the NVIDIA "
            "V100-SXM2-32GB");
}

Job job_on(const Cluster& cluster) {
  Job job;
  job.architecture = gpt_architecture("gpt", 4096, 30, 32, 51200, 2048);
  job.model = model_of(*job.architecture);
  job.cluster = cluster;
  job.global_batch = 32;
  job.strategy.schedule_mode = {"1f1b"};
  job.strategy.mp_degree = {"8"};
  job.strategy.dp_degree = {"1"};
  job.strategy.micro_batch_size = {"1"};
  return job;
}

TEST(NodeOrders, APlanNamesTheDevicesInTheOrderOfItsRanks) {
  Job job = job_on(cluster_of("AV"));
  job.strategy.pp_degree = {"2"};
  job.strategy.node_order = {"1-0"};
  const planner::SearchResult result = planner::search(job);
  ASSERT_TRUE(result.best);
  for (const auto& row : result.ranked)
    EXPECT_EQ(row.parallel.order.of_nodes, (NodeOrder{1, 0})) << describe(row);
  EXPECT_EQ(result.best->mesh.devices, (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15,  //
                                                         0, 1, 2, 3, 4, 5, 6, 7}));
  const StagePlan& first = result.best->stages.front();  // on the V100
  EXPECT_LT(2 * (first.end_layer - first.first_layer), 32);
}

TEST(NodeOrders, PlansThatDifferInItSaySo) {
  Job job = job_on(cluster_of("AV"));
  job.strategy.pp_degree = {"2"};
  job.strategy.node_order = {"file"};
  const Plan first = *planner::search(job).best;
  job.strategy.node_order = {"1-0"};
  const Plan second = *planner::search(job).best;
  const auto differences = planner::plan_differences(first, second);
  EXPECT_EQ(std::count(differences.begin(), differences.end(),
                       "nodes in order NVIDIA A100-SXM4-80GB, NVIDIA V100-SXM2-32GB, then NVIDIA "
                       "V100-SXM2-32GB, NVIDIA A100-SXM4-80GB"),
            1)
      << ::testing::PrintToString(differences);
}

TEST(NodeOrders, WhereDevicesAreIdleTheFasterNodesAreTaken) {
  Job job = job_on(cluster_of("VA"));
  job.strategy.pp_degree = {"1"};
  const planner::SearchResult result = planner::search(job);
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.ranked.front().parallel.order.of_nodes, (NodeOrder{1, 0}));
  EXPECT_EQ(result.best->mesh.devices.front(), 8);
}

TEST(NodeOrders, AnOrderThatPutsNoRankElsewhereIsCountedAndNotTried) {
  Job job = job_on(cluster_of("VA"));
  job.strategy.pp_degree = {"1"};
  job.strategy.dp_degree = {"2"};  // each rank of the pipeline has all nodes
  const planner::SearchResult result = planner::search(job);
  EXPECT_EQ(by_sentence(result.pruned)
                .count("every rank on the same nodes as in another order of the nodes"),
            1U);
  for (const auto& row : result.ranked) EXPECT_TRUE(row.parallel.order.of_nodes.empty());
}

TEST(NodeOrders, AreAskedForByName) {
  Job job = job_on(cluster_of("AV"));
  job.strategy.pp_degree = {"2"};
  const planner::SearchResult found = planner::search(job);
  const auto explained = [&](const std::string& text) {
    return planner::explain(job, nullptr, 0, found, text).candidate->parallel.order.of_nodes;
  };
  EXPECT_EQ(explained("node_order=1-0"), (NodeOrder{1, 0}));
  EXPECT_EQ(explained("node_order=file"), NodeOrder{});
  EXPECT_THROW(explained("node_order=2-0"), InputError);
}

TEST(NodeOrders, AJobSaysWhichOrdersItAllows) {
  const auto read = [](const char* order, const char* model) {
    Json job = Json::parse(R"({"schema": "pipewright.job/1", "global_batch": 8,
      "cluster": {"schema": "pipewright.cluster/1", "name": "mixed", "devices_per_node": 8,
        "node_kinds": [{"nodes": 1, "preset": "dgx-a100"}, {"nodes": 1, "preset": "dgx-v100"}]}})");
    job["model"] = model;
    job["strategy"]["node_order"] = Json::parse(order);
    return read_job(JsonCursor(job, "job.json"));
  };
  EXPECT_TRUE(read("\"auto\"", "llama3-8b").strategy.node_order.empty());
  EXPECT_EQ(read("[\"file\", \"1-0\"]", "llama3-8b").strategy.node_order, (Choice{"file", "1-0"}));
  EXPECT_EQ(to_json(read("\"1-0\"", "llama3-8b"))["strategy"]["node_order"], "1-0");
  const auto pointer = [&](const char* order, const char* model) {
    return test::refusal([&] { read(order, model); }).pointer();
  };
  EXPECT_EQ(pointer("\"0-2\"", "llama3-8b"), "/strategy/node_order");
  EXPECT_EQ(pointer("\"1-0\"", "mlp"), "/strategy/node_order");  // planned layer by layer
  EXPECT_EQ(read("\"file\"", "mlp").strategy.node_order, Choice{"file"});
}

}  // namespace node_order_test
}  // namespace pipewright
