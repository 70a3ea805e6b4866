// What the estimate makes of a cluster: an entry for every node where nodes differ.
#include <gtest/gtest.h>

#include "core/cluster/cluster.hpp"
#include "planner/estimate/coefficients.hpp"

namespace pipewright {
namespace machine_of_cluster_test {

Cluster mixed() {
  const Json document = Json::parse(R"({"schema": "pipewright.cluster/1", "name": "mixed",
    "devices_per_node": 8,
    "node_kinds": [{"nodes": 2, "preset": "dgx-v100"}, {"nodes": 3, "preset": "dgx-h200"}]})");
  return read_cluster(JsonCursor(document, "c.json"));
}

TEST(MachineOfCluster, EqualNodesAreOneEntry) {
  const auto machine = planner::machine_of(cluster_preset("dgx-h100", 32));
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.devices_per_node, 8);
  EXPECT_EQ(machine.nodes[0].network_bytes_per_second, 8 * 50e9);
}

TEST(MachineOfCluster, KindsOfNodesAreAnEntryForEachNode) {
  const auto machine = planner::machine_of(mixed());
  ASSERT_EQ(machine.nodes.size(), 5U);
  EXPECT_EQ(machine.node(1).device.name, "V100");
  EXPECT_EQ(machine.node(2).device.name, "H200");
  EXPECT_EQ(machine.node(4).device.memory_bytes, 141.0 * (1LL << 30));
  EXPECT_EQ(machine.node(0).network_bytes_per_second, 8 * 6.25e9);
}

TEST(MachineOfCluster, SharedPortsAreTheNodesWholeNetwork) {
  Cluster cluster = cluster_preset("dgx-a100", 16);
  cluster.network_ports = 2;
  EXPECT_EQ(planner::machine_of(cluster).nodes[0].network_bytes_per_second, 2 * 25e9);
}

TEST(MachineOfCluster, LinksInsideANodeCountByWhatCollectivesReachOfThem) {
  Cluster cluster = cluster_preset("dgx-a100", 8);
  // nccl-tests: 230 of the 300 GB/s of an A100's NVLink.
  EXPECT_EQ(planner::machine_of(cluster).nodes[0].inside_bytes_per_second, 230e9);
  cluster.inside.bytes_per_second = 10e9;
  EXPECT_DOUBLE_EQ(planner::machine_of(cluster).nodes[0].inside_bytes_per_second, 10e9 * 230 / 300);
}

TEST(MachineOfCluster, AStatedPeakTakesThePlaceOfTheDataSheets) {
  Cluster cluster = cluster_preset("dgx-h100", 8);
  EXPECT_EQ(planner::machine_of(cluster).nodes[0].device.peak_flops, 989e12);
  cluster.device.flops = 756e12;  // an H100 on PCI Express
  EXPECT_EQ(planner::machine_of(cluster).nodes[0].device.peak_flops, 756e12);
}

TEST(MachineOfCluster, EveryPresetHasItsDevicesOwnLinks) {
  for (const std::string_view name : cluster_preset_names()) {
    if (name == "local-cpu") continue;
    const Cluster cluster = cluster_preset(name, 8);
    EXPECT_EQ(planner::machine_of(cluster).nodes[0].inside_bytes_per_second,
              planner::nvlink_machine(cluster.device.model, 1).nodes[0].inside_bytes_per_second)
        << name;
  }
}

TEST(MachineOfCluster, EachKindOfNodeHasItsOwnLinks) {
  const Json document = Json::parse(R"({"schema": "pipewright.cluster/1", "name": "mixed",
    "devices_per_node": 8, "node_kinds": [
      {"nodes": 1, "preset": "dgx-h100"},
      {"nodes": 1, "device": {"kind": "cuda", "model": "H100", "memory_bytes": 80000000000,
                              "peak_flops": 989e12},
       "inside": {"latency_ns": 5000, "bytes_per_second": 45e9},
       "across": {"latency_ns": 5000, "bytes_per_second": 50e9}}]})");
  const auto machine = planner::machine_of(read_cluster(JsonCursor(document, "c.json")));
  EXPECT_EQ(machine.node(0).inside_bytes_per_second, 360e9);
  EXPECT_DOUBLE_EQ(machine.node(1).inside_bytes_per_second, 36e9);
}

}  // namespace machine_of_cluster_test
}  // namespace pipewright
