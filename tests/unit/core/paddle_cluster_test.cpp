// Paddle's cluster files, read as they are.
#include "core/cluster/paddle.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace paddle_cluster_test {

using test::refusal;

/// Two machines of two V100 each with a CPU and a network card; NVLink inside, 100 Gb/s across.
Json two_machines() {
  Json document = Json::parse(R"({"alpha_latency": {"base": {"ring": 8.4, "tree": 0},
      "inter": {"ring": "NET", "tree": "NET"}, "intra": {"ring": "NVL", "tree": 28}, "switch": 10},
    "machines": []})");
  for (int machine = 0; machine < 2; ++machine) {
    const int first = machine * 4;
    Json devices = Json::array();
    for (int gpu = 0; gpu < 2; ++gpu) {
      devices.push_back({{"global_id", first + gpu},
                         {"local_id", gpu},
                         {"type", "GPU"},
                         {"model", "Tesla V100-SXM2-32GB"},
                         {"memory", 32},
                         {"sp_gflops", 15700},
                         {"dp_gflops", 7800},
                         {"hp_gflops", 125000}});
    }
    devices.push_back({{"global_id", first + 2},
                       {"local_id", 0},
                       {"type", "CPU"},
                       {"arch", "x86_64"},
                       {"vendor", "GenuineIntel"},
                       {"memory", "502"},
                       {"sp_gflops", "150"}});
    devices.push_back({{"global_id", first + 3},
                       {"local_id", 0},
                       {"type", "NIC"},
                       {"width", 12.5},
                       {"ip", "10.0.0.1"}});
    const auto link = [](int from, int to, const char* type, double bandwidth) {
      return Json{{"source_global_id", from},
                  {"target_global_id", to},
                  {"type", type},
                  {"bandwidth", bandwidth}};
    };
    document["machines"].push_back(
        {{"hostname", "host" + std::to_string(machine)},
         {"addr", "127.0.0.1"},
         {"port", "768"},
         {"devices", devices},
         {"links",
          {link(first, first + 1, "NVL", 150), link(first + 1, first, "NVL", 140),
           link(first, first + 2, "PHB", 12), link(first + 3, 7 - first, "NET", 12.5)}}});
  }
  return document;
}

Cluster read(const Json& document) { return read_cluster(JsonCursor(document, "cluster.json")); }

bool assumes(const Cluster& cluster, const std::string& words) {
  return std::any_of(cluster.assumed.begin(), cluster.assumed.end(), [&](const std::string& text) {
    return text.find(words) != std::string::npos;
  });
}

TEST(PaddleCluster, IsReadInOurTerms) {
  const Cluster cluster = read(two_machines());
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.devices_per_node, 2);
  EXPECT_EQ(cluster.device.kind, "cuda");
  EXPECT_EQ(cluster.device.model, "Tesla V100-SXM2-32GB");
  EXPECT_EQ(cluster.device.memory.value, std::int64_t{32} << 30);
  EXPECT_EQ(cluster.device.flops, 125e12);
  EXPECT_EQ(cluster.inside.bytes_per_second, 140e9);  // the slower direction
  EXPECT_EQ(cluster.inside.latency.value, 3400);
  EXPECT_EQ(cluster.across.bytes_per_second, 12.5e9);
  EXPECT_EQ(cluster.across.latency.value, 19600);
  EXPECT_TRUE(cluster.kinds.empty());
  EXPECT_TRUE(assumes(cluster, "binary gigabytes"));
  EXPECT_FALSE(assumes(cluster, "default"));
  // From there on it is a cluster as any other.
  EXPECT_EQ(to_json(read(to_json(cluster))), to_json(cluster));
}

TEST(PaddleCluster, WhatIsMissingIsAssumedAndSaid) {
  Json document = two_machines();
  document.erase("alpha_latency");
  for (Json& machine : document["machines"]) {
    machine.erase("links");
    for (Json& device : machine["devices"]) {
      device.erase("hp_gflops");
      device.erase("sp_gflops");
    }
  }
  const Cluster cluster = read(document);
  EXPECT_EQ(cluster.inside.bytes_per_second, 235e9);
  EXPECT_EQ(cluster.across.bytes_per_second, 24e9);
  EXPECT_EQ(cluster.device.flops, 125e12);
  EXPECT_TRUE(assumes(cluster, "235 GB/s"));
  EXPECT_TRUE(assumes(cluster, "24 GB/s"));
  EXPECT_TRUE(assumes(cluster, "alpha_latency"));
  EXPECT_TRUE(assumes(cluster, "a V100 computes at 125000 gigaflops"));
}

TEST(PaddleCluster, NumbersMayBeTexts) {
  Json document = two_machines();
  for (Json& machine : document["machines"]) {
    for (int gpu = 0; gpu < 2; ++gpu) {
      machine["devices"][gpu]["memory"] = "16";
      machine["devices"][gpu]["hp_gflops"] = "112000.5";
    }
    machine["links"][0]["bandwidth"] = "22.5";
  }
  EXPECT_EQ(read(document).device.memory.value, std::int64_t{16} << 30);
  EXPECT_EQ(read(document).device.flops, 112000.5e9);
  EXPECT_EQ(read(document).inside.bytes_per_second, 22.5e9);
  document["machines"][0]["devices"][1]["memory"] = "16GB";
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/machines/0/devices/1/memory");
}

TEST(PaddleCluster, MachinesThatDifferAreKindsOfNodes) {
  Json document = two_machines();
  for (int gpu = 0; gpu < 2; ++gpu) {
    document["machines"][1]["devices"][gpu]["model"] = "A100-SXM4-40GB";
    document["machines"][1]["devices"][gpu]["memory"] = 40;
    document["machines"][1]["devices"][gpu]["hp_gflops"] = 312000;
  }
  const Cluster cluster = read(document);
  ASSERT_EQ(cluster.kinds.size(), 2U);
  EXPECT_EQ(cluster.device.flops, 125e12);
  EXPECT_EQ(kind_of_node(cluster, 1).device.model, "A100-SXM4-40GB");
}

TEST(PaddleCluster, RefusedAtItsPlace) {
  const auto pointer = [](const char* place, const char* value) {
    Json document = two_machines();
    document[Json::json_pointer(place)] = Json::parse(value);
    return refusal([&] { read(document); }).pointer();
  };
  EXPECT_EQ(pointer("/machines", "[]"), "/machines");
  EXPECT_EQ(pointer("/machnes", "[]"), "/machnes");
  EXPECT_EQ(pointer("/machines/0/host", "1"), "/machines/0/host");
  EXPECT_EQ(pointer("/machines/1/devices/0/global_id", "1"), "/machines/1/devices/0/global_id");
  EXPECT_EQ(pointer("/machines/1/devices/0/type", "\"TPU\""), "/machines/1/devices/0/type");
  EXPECT_EQ(pointer("/machines/1/devices/0/type", "\"XPU\""), "/machines/1/devices/0/type");
  EXPECT_EQ(pointer("/machines/1/devices/0/type", "\"CPU\""), "/machines/1/devices");
  EXPECT_EQ(pointer("/machines/1/devices", "[]"), "/machines/1/devices");
  EXPECT_EQ(pointer("/machines/0/devices/1/memory", "16"), "/machines/0/devices/1");
  EXPECT_EQ(pointer("/machines/0/devices/1/memory", "0"), "/machines/0/devices/1/memory");
  EXPECT_EQ(pointer("/machines/0/links/0/target_global_id", "99"),
            "/machines/0/links/0/target_global_id");
  EXPECT_EQ(pointer("/machines/0/links/0/bandwidth", "-1"), "/machines/0/links/0/bandwidth");
  EXPECT_EQ(pointer("/alpha_latency/intra/ring", "\"NVS\""), "/alpha_latency/intra/ring");
  EXPECT_EQ(pointer("/alpha_latency/intre", "{}"), "/alpha_latency/intre");
}

}  // namespace paddle_cluster_test
}  // namespace pipewright
