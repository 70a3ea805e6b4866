// Clusters whose nodes differ, and nodes whose devices share ports to the network.
#include <gtest/gtest.h>

#include "core/cluster/cluster.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace cluster_kinds_test {

using test::refusal;

Json mixed() {
  return Json::parse(R"({"schema": "pipewright.cluster/1", "name": "old and new",
    "devices_per_node": 8, "node_kinds": [
      {"nodes": 1, "device": {"kind": "cuda", "model": "NVIDIA V100-SXM2-32GB",
                              "memory_bytes": 34359738368, "peak_flops": 1.25e14},
       "inside": {"latency_ns": 5000, "bytes_per_second": 1.5e11, "sharing": "fair"},
       "across": {"latency_ns": 12000, "bytes_per_second": 6e9, "sharing": "fair"}},
      {"nodes": 2, "preset": "dgx-h100"}]})");
}

Cluster read(const Json& document) { return read_cluster(JsonCursor(document, "c.json")); }

TEST(NodeKinds, WhoDoesNotLookSeesTheWeakestNode) {
  const Cluster cluster = read(mixed());
  EXPECT_EQ(cluster.nodes, 3);
  EXPECT_EQ(cluster.devices(), 24);
  EXPECT_EQ(cluster.device.model, "NVIDIA V100-SXM2-32GB");
  EXPECT_EQ(cluster.device.memory.value, 34359738368);
  EXPECT_EQ(cluster.inside.bytes_per_second, 1.5e11);
  EXPECT_EQ(cluster.across.latency.value, 12000);
  EXPECT_EQ(kind_of_node(cluster, 0).device.flops, 1.25e14);
  EXPECT_EQ(kind_of_node(cluster, 2).device.model, "NVIDIA H100-SXM5-80GB");
}

TEST(NodeKinds, AreWrittenInFullAndReadBackAlike) {
  const Json written = to_json(read(mixed()));
  EXPECT_FALSE(written.contains("nodes"));
  EXPECT_EQ(written["node_kinds"].size(), 2U);
  EXPECT_EQ(to_json(read(written)), written);
  EXPECT_EQ(fingerprint(read(written)),
            "cuda NVIDIA V100-SXM2-32GB, 34359738368 bytes, nodes 1, devices 8; cuda NVIDIA "
            "H100-SXM5-80GB, 85899345920 bytes, nodes 2, devices 16");
}

TEST(NodeKinds, EqualNodesKeepTheirFormat) {
  const Json written = to_json(cluster_preset("dgx-a100", 16));
  const std::vector<std::string> expected = {"schema", "name",   "nodes", "devices_per_node",
                                             "device", "inside", "across"};
  std::vector<std::string> keys;
  for (const auto& [key, value] : written.items()) keys.push_back(key);
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(kind_of_node(cluster_preset("dgx-a100", 16), 1).device.model, "NVIDIA A100-SXM4-80GB");
}

TEST(NodeKinds, ATransferIsAsFastAsTheSlowerOfTwoPorts) {
  CostTable costs;
  set_routes(costs, read(mixed()), {0, 8, 9, 16});
  const auto route = [&](int from, int to) { return costs.route(RankId(from), RankId(to), 4); };
  EXPECT_EQ(route(0, 1).bytes_per_second, 6e9);
  EXPECT_EQ(route(0, 1).latency.value, 12000);
  EXPECT_EQ(route(1, 2).bytes_per_second, 450e9);  // within the first H100 node
  EXPECT_EQ(route(1, 3).bytes_per_second, 50e9);   // between the two
  ASSERT_EQ(route(0, 1).links.size(), 2U);
  EXPECT_EQ(costs.links[route(0, 1).links[0]].bytes_per_second, 6e9);
  EXPECT_EQ(costs.links[route(0, 1).links[1]].bytes_per_second, 50e9);
}

TEST(NetworkPorts, DevicesOfAPortShareItsLink) {
  Cluster cluster = cluster_preset("dgx-a100", 16);
  cluster.network_ports = 3;  // devices 0-2, 3-5 and 6-7 of a node
  CostTable costs;
  set_routes(costs, cluster, {0, 2, 3, 5, 6, 7, 8});
  const auto out = [&](int from) { return costs.route(RankId(from), RankId(6), 7).links.at(0); };
  EXPECT_EQ(out(0), out(1));
  EXPECT_NE(out(1), out(2));
  EXPECT_EQ(out(2), out(3));
  EXPECT_NE(out(3), out(4));
  EXPECT_EQ(out(4), out(5));
  EXPECT_EQ(costs.links[out(5)].name, "device 6 out, network");
  const Json written = to_json(cluster);
  EXPECT_EQ(written["network_ports"], 3);
  EXPECT_EQ(to_json(read(written)), written);
}

TEST(NodeKinds, RefusedAtTheirPlace) {
  const auto pointer = [](const char* place, const char* value) {
    Json document = mixed();
    document[Json::json_pointer(place)] = Json::parse(value);
    return refusal([&] { read(document); }).pointer();
  };
  EXPECT_EQ(pointer("/node_kinds", "[]"), "/node_kinds");
  EXPECT_EQ(pointer("/nodes", "3"), "/nodes");
  EXPECT_EQ(pointer("/slow", "[]"), "/slow");
  EXPECT_EQ(pointer("/node_kinds/0/nodes", "0"), "/node_kinds/0/nodes");
  EXPECT_EQ(pointer("/node_kinds/0/nodes", "1048576"), "/node_kinds");
  EXPECT_EQ(pointer("/node_kinds/0/nodes", "600000"), "/devices_per_node");
  EXPECT_EQ(pointer("/node_kinds/0/device/kind", "\"cpu\""), "/node_kinds/1");
  EXPECT_EQ(pointer("/node_kinds/1/preset", "\"dgx-h10\""), "/node_kinds/1/preset");
  EXPECT_EQ(pointer("/node_kinds/1/preset", "\"local-cpu\""), "/node_kinds/1/preset");
  EXPECT_EQ(pointer("/node_kinds/1/device", "{}"), "/node_kinds/1/device");
  EXPECT_EQ(pointer("/network_ports", "9"), "/network_ports");
  Json document = mixed();
  document["node_kinds"][0].erase("across");
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/node_kinds/0");
}

}  // namespace cluster_kinds_test
}  // namespace pipewright
