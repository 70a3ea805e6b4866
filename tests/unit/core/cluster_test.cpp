#include "core/cluster/cluster.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/cluster/mesh.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace cluster_test {

using test::refusal;

TEST(ClusterPresets, SizesAndNames) {
  EXPECT_EQ(cluster_preset("local-cpu").devices(), 4);
  EXPECT_EQ(cluster_preset("local-cpu", 7).devices(), 7);
  EXPECT_EQ(cluster_preset("dgx-a100").nodes, 1);
  EXPECT_EQ(cluster_preset("dgx-h100", 32).nodes, 4);
  EXPECT_EQ(cluster_preset("dgx-h100", 32).devices(), 32);
  EXPECT_EQ(refusal([] { cluster_preset("dgx-h100", 12); }).message(),
            "dgx-h100 comes in whole nodes of 8 devices, so 12 cannot be had; ask for 16, or "
            "describe the cluster in a file");
  EXPECT_EQ(refusal([] { cluster_preset("dgx-h10"); }).message(),
            "unknown cluster preset \"dgx-h10\" (did you mean \"dgx-h100\"?); the presets are "
            "local-cpu, dgx-v100, dgx-a100-40gb, dgx-a100, dgx-h100, dgx-h200, dgx-b200, mi300x, "
            "mi325x, mi355x");
  EXPECT_THROW(cluster_preset("local-cpu", -1), InputError);
}

TEST(ClusterPresets, NewerSystemsAreFasterInEveryPart) {
  const char* names[] = {"dgx-v100", "dgx-a100", "dgx-h100", "dgx-b200"};
  for (std::size_t n = 1; n < std::size(names); ++n) {
    const Cluster older = cluster_preset(names[n - 1]), newer = cluster_preset(names[n]);
    EXPECT_GT(newer.device.flops, older.device.flops) << names[n];
    EXPECT_GT(newer.inside.bytes_per_second, older.inside.bytes_per_second) << names[n];
    EXPECT_GE(newer.across.bytes_per_second, older.across.bytes_per_second) << names[n];
    EXPECT_GE(newer.device.memory, older.device.memory) << names[n];
  }
  EXPECT_EQ(cluster_preset("dgx-a100-40gb").device.memory.value, 40LL << 30);
  EXPECT_EQ(cluster_preset("dgx-h200").device.memory.value, 141LL << 30);
}

TEST(Fingerprint, SaysWhatAPlanWasMadeFor) {
  EXPECT_EQ(fingerprint(cluster_preset("dgx-a100", 16)),
            "cuda NVIDIA A100-SXM4-80GB, 85899345920 bytes, nodes 2, devices 16");
  Cluster other = cluster_preset("dgx-a100", 16);
  other.name = "another name for the same machine";
  EXPECT_EQ(fingerprint(other), fingerprint(cluster_preset("dgx-a100", 16)));
}

TEST(Routes, EqualOnesNeedNoTable) {
  CostTable costs;
  set_routes(costs, cluster_preset("local-cpu", 4), {0, 1, 2, 3});
  EXPECT_TRUE(costs.route_of_edge.empty());
  EXPECT_TRUE(costs.links.empty());
  EXPECT_EQ(costs.every_route.latency, Nanoseconds(2000));
  EXPECT_EQ(costs.every_route.bytes_per_second, 10e9);
}

TEST(Routes, GoThroughTheOutPortAndTheInPort) {
  CostTable costs;
  // Ranks 0 and 1 in the first node, rank 2 in the second.
  const Cluster cluster = cluster_preset("dgx-a100", 16);
  set_routes(costs, cluster, {0, 1, 8});
  const auto route = [&](int from, int to) { return costs.route(RankId(from), RankId(to), 3); };
  EXPECT_EQ(route(0, 1).latency, cluster.inside.latency);
  EXPECT_EQ(route(1, 0).bytes_per_second, 300e9);
  EXPECT_EQ(route(0, 2).latency, cluster.across.latency);
  EXPECT_EQ(route(2, 1).bytes_per_second, 25e9);
  // Two transfers out of rank 0 over the network share one link, and so do two into rank 2.
  ASSERT_EQ(route(0, 2).links.size(), 2U);
  EXPECT_EQ(route(0, 2).links[1], route(1, 2).links[1]);
  EXPECT_NE(route(0, 2).links[0], route(1, 2).links[0]);
  EXPECT_NE(route(0, 1).links[0], route(0, 2).links[0]) << "NVLink and network are two ports";
  // Inside: out and in of devices 0 and 1. Across: out and in of all three. No more than that.
  EXPECT_EQ(costs.links.size(), 4U + 6U);
  EXPECT_EQ(costs.links[route(0, 2).links[0]].name, "device 0 out, network");
  EXPECT_EQ(costs.links[route(0, 2).links[0]].sharing, Sharing::Fair);
  EXPECT_TRUE(costs.has_shared_links());
}

TEST(Routes, SetAgainReplacesWhatWasThere) {
  CostTable costs;
  set_routes(costs, cluster_preset("dgx-a100"), {0, 1});
  set_routes(costs, cluster_preset("local-cpu", 2), {0, 1});
  EXPECT_TRUE(costs.route_of_edge.empty());
  EXPECT_FALSE(costs.has_shared_links());
}

TEST(Mesh, SizesAndDevicesOfThePipeline) {
  const Json document = parse_json(
      R"({"shape": [2, 3, 2], "dim_names": ["dp", "pp", "tp"],
          "devices": [0,1,2,3,4,5,6,7,8,9,10,11]})",
      "m.json");
  const Mesh mesh = read_mesh(JsonCursor(document, "m.json"));
  EXPECT_EQ(mesh.size("pp"), 3);
  EXPECT_EQ(mesh.size("tp"), 2);
  EXPECT_EQ(mesh.size("cp"), 1);
  // Row major: pp steps over the two devices of tp.
  EXPECT_EQ(mesh.devices_of_pipeline(), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(to_json(mesh), document);
  EXPECT_EQ(Mesh::pipeline(3).devices_of_pipeline(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(mesh.devices_of_replicas(), (std::vector<int>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(Mesh::data_parallel(2, 3).devices_of_replicas(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Mesh::data_parallel(1, 3).shape, (std::vector<int>{3}));
}

TEST(Mesh, RefusedAtTheirPlace) {
  const auto pointer = [](const char* text) {
    const Json document = parse_json(text, "m.json");
    return refusal([&] { read_mesh(JsonCursor(document, "m.json")); }).pointer();
  };
  EXPECT_EQ(pointer(R"({"shape": [2], "dim_names": ["pp"], "devices": [0, 0]})"), "/devices/1");
  EXPECT_EQ(pointer(R"({"shape": [2], "dim_names": ["pp"], "devices": [0]})"), "/devices");
  EXPECT_EQ(pointer(R"({"shape": [2], "dim_names": ["pq"], "devices": [0, 1]})"), "/dim_names/0");
  EXPECT_EQ(pointer(R"({"shape": [2, 1], "dim_names": ["pp", "pp"], "devices": [0, 1]})"),
            "/dim_names/1");
  EXPECT_EQ(pointer(R"({"shape": [2, 1], "dim_names": ["pp"], "devices": [0, 1]})"), "/dim_names");
  EXPECT_EQ(pointer(R"({"shape": [65536, 65536], "dim_names": ["pp"], "devices": []})"), "/shape");
  EXPECT_EQ(pointer(R"({"shape": [], "dim_names": [], "devices": []})"), "/shape");
}

}  // namespace cluster_test
}  // namespace pipewright
