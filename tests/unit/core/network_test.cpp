// A cluster's network: what is read, and which links a transfer takes. Worked out by hand.
#include "core/cluster/network.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/cluster/cluster.hpp"
#include "core/cluster/network_paths.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace network_test {

using test::refusal;

/// `nodes` of eight devices with a port each of 50 GB/s, NVLink of 400 GB/s.
Json eight_a_node(int nodes, std::string_view network) {
  Json cluster = parse_json(R"({
    "schema": "pipewright.cluster/1", "name": "test", "devices_per_node": 8,
    "device": {"kind": "cuda", "model": "GPU", "memory_bytes": 1000, "peak_flops": 1e12},
    "inside": {"latency_ns": 1000, "bytes_per_second": 4e11},
    "across": {"latency_ns": 5000, "bytes_per_second": 5e10}})",
                            "test");
  cluster["nodes"] = nodes;
  cluster["network"] = parse_json(network, "network");
  return cluster;
}

Cluster read(const Json& document) { return read_cluster(JsonCursor(document, "c.json")); }

std::vector<std::string> links(const Cluster& cluster, int source, int destination) {
  CostTable costs;
  set_routes(costs, cluster, {source, destination});
  std::vector<std::string> names;
  for (const std::uint32_t link : costs.route(RankId(0), RankId(1), 2).links) {
    EXPECT_EQ(costs.links[link].sharing, Sharing::MaxMin);
    names.push_back(costs.links[link].name);
  }
  return names;
}

using Names = std::vector<std::string>;

constexpr std::string_view kRails = R"({"kind": "fat-tree", "rails": 8, "levels": [
    {"joins": 4, "oversubscription": 4, "latency_ns": 300}, {"joins": 4}]})";

TEST(FatTree, RailsMeetTheirOwnOnTheLeafAndOthersAbove) {
  const Cluster cluster = read(eight_a_node(16, kRails));
  // Inside a node: its two ports of NVLink.
  EXPECT_EQ(links(cluster, 0, 3), (Names{"device 0 out", "device 3 in"}));
  // The same place in a node of the same four: their rail's switch alone.
  EXPECT_EQ(links(cluster, 3, 8 + 3), (Names{"device 3 out, network", "device 11 in, network"}));
  // Another rail, or another four: up the sender's rail and down the receiver's. A rail's switch
  // has four ports below it, so 4 / 4 = 1 uplink.
  EXPECT_EQ(links(cluster, 3, 8 + 4),
            (Names{"device 3 out, network", "level 1 group 0 rail 3, uplink 0 up",
                   "level 1 group 0 rail 4, uplink 0 down", "device 12 in, network"}));
  EXPECT_EQ(links(cluster, 3, 40 + 3),
            (Names{"device 3 out, network", "level 1 group 0 rail 3, uplink 0 up",
                   "level 1 group 1 rail 3, uplink 0 down", "device 43 in, network"}));
  // The port's latency and that of each hop.
  EXPECT_EQ(way_between(cluster, 3, 11).latency, Nanoseconds(5000));
  EXPECT_EQ(way_between(cluster, 3, 43).latency, Nanoseconds(5600));
  EXPECT_EQ(way_between(cluster, 3, 43).bytes_per_second, 5e10);
  EXPECT_TRUE(way_between(cluster, 3, 43).links.empty());
  // A quarter of what the ports can send goes up.
  EXPECT_DOUBLE_EQ(least_share_upwards(cluster), 0.25);
  EXPECT_DOUBLE_EQ(least_share_upwards(read(eight_a_node(4, kRails))), 1)
      << "four nodes need no second level";
}

TEST(FatTree, RailsThatMeetInNodesChangeThemBeforeTheyLeave) {
  const Cluster cluster = read(eight_a_node(
      2, R"({"kind": "fat-tree", "rails": 8, "between_rails": "nodes", "levels": [{}]})"));
  EXPECT_EQ(links(cluster, 1, 8 + 6), (Names{"device 1 out", "device 6 in", "device 6 out, network",
                                             "device 14 in, network"}));
  EXPECT_EQ(way_between(cluster, 1, 14).latency, Nanoseconds(6000));
  EXPECT_EQ(links(cluster, 6, 14), (Names{"device 6 out, network", "device 14 in, network"}));
}

TEST(FatTree, ThreeLevelsGoDownTheSwitchesTheyWentUp) {
  // Leaves of 2 nodes (16 ports, 8 uplinks), pods of 2 leaves (2 ports below a switch, 2 uplinks).
  const Cluster cluster = read(eight_a_node(8, R"({"kind": "fat-tree", "levels": [
      {"joins": 2, "oversubscription": 2}, {"joins": 2, "oversubscription": 1},
      {"joins": 2}]})"));
  EXPECT_EQ(cluster.network->levels[0].uplinks, 8);
  EXPECT_EQ(cluster.network->levels[1].uplinks, 2);
  EXPECT_EQ(links(cluster, 0, 8).size(), 2U) << "one leaf";
  EXPECT_EQ(links(cluster, 0, 16).size(), 4U) << "one pod";
  const Names far = links(cluster, 0, 32);
  ASSERT_EQ(far.size(), 6U);
  // "level 1 group 0, uplink u up" and "level 1 group 2, uplink u down" with the same u.
  const auto uplink = [](const std::string& name) {
    return name.substr(name.find("uplink"), name.rfind(' ') - name.find("uplink"));
  };
  EXPECT_EQ(uplink(far[1]), uplink(far[4]));
  EXPECT_EQ(uplink(far[2]), uplink(far[3]));
  EXPECT_TRUE(far[1].starts_with("level 1 group 0"));
  EXPECT_TRUE(far[2].starts_with("level 2 group 0"));
  EXPECT_TRUE(far[3].starts_with("level 2 group 1"));
  EXPECT_TRUE(far[4].starts_with("level 1 group 2"));
  EXPECT_DOUBLE_EQ(least_share_upwards(cluster), 0.5);
}

TEST(FatTree, FlowsSpreadOverTheUplinksAndAlwaysTakeTheSame) {
  const Cluster cluster = read(eight_a_node(16, R"({"kind": "fat-tree", "levels": [
      {"joins": 8, "uplinks": 16}, {"joins": 2}]})"));
  std::set<std::string> used;
  for (int device = 0; device < 64; ++device) {
    const Names way = links(cluster, device, 64 + device);
    ASSERT_EQ(way.size(), 4U);
    EXPECT_EQ(way, links(cluster, device, 64 + device));
    used.insert(way[1]);
  }
  EXPECT_GE(used.size(), 12U) << "64 flows over 16 uplinks leave few of them out";
}

TEST(FatTree, PacketsUseAllUplinks) {
  const Cluster cluster = read(eight_a_node(4, R"({"kind": "fat-tree", "routing": "packet",
      "levels": [{"joins": 2, "uplinks": 4}, {}]})"));
  CostTable costs;
  set_routes(costs, cluster, {0, 16});
  const RouteCosts& route = costs.route(RankId(0), RankId(1), 2);
  ASSERT_EQ(route.links.size(), 4U);
  EXPECT_EQ(costs.links[route.links[1]].name, "level 1 group 0, uplinks up");
  EXPECT_EQ(costs.links[route.links[1]].bytes_per_second, 4 * 5e10);
  EXPECT_EQ(route.bytes_per_second, 5e10);
}

TEST(Cables, TheShortestWayAndOneOfEqualOnes) {
  Json document = eight_a_node(3, R"({"kind": "cables", "cables": [
      {"from": "node 0 port 0", "to": "a", "bytes_per_second": 5e10, "latency_ns": 10},
      {"from": "node 1 port 0", "to": "a", "bytes_per_second": 5e10, "latency_ns": 10},
      {"from": "a", "to": "b", "count": 2, "bytes_per_second": 2e10, "latency_ns": 100},
      {"from": "b", "to": "node 2 port 0", "bytes_per_second": 5e10}]})");
  document["network_ports"] = 1;
  const Cluster cluster = read(document);
  EXPECT_EQ(links(cluster, 0, 9), (Names{"device 0 out, network", "node 0 port 0 to a",
                                         "a to node 1 port 0", "device 8 in, network"}));
  const Names far = links(cluster, 17, 2);
  ASSERT_EQ(far.size(), 5U);
  EXPECT_EQ(far[1], "node 2 port 0 to b");
  EXPECT_TRUE(far[2] == "b to a, cable 0" || far[2] == "b to a, cable 1") << far[2];
  EXPECT_EQ(way_between(cluster, 17, 2).latency, Nanoseconds(5110));
  EXPECT_EQ(way_between(cluster, 17, 2).bytes_per_second, 2e10);
}

TEST(Network, IsWrittenAsItIsRead) {
  const Json document = eight_a_node(16, kRails);
  const Json written = to_json(read(document));
  EXPECT_EQ(written["network"]["levels"][0]["uplinks"], 1);
  EXPECT_EQ(written["network"]["levels"][1], Json({{"joins", 4}}));
  EXPECT_EQ(written["inside"]["sharing"], "max-min");
  EXPECT_EQ(to_json(read(written)), written);
}

TEST(Network, RefusedAtItsPlace) {
  const auto pointer = [](int nodes, std::string_view network) {
    const Json document = eight_a_node(nodes, network);
    const InputError error = refusal([&] { read(document); });
    test::expect_one_line(error);
    return error.pointer();
  };
  const auto levels = [&](std::string_view text) {
    return pointer(16, R"({"kind": "fat-tree", "levels": )" + std::string(text) + "}");
  };
  EXPECT_EQ(pointer(1, kRails), "/network");
  EXPECT_EQ(pointer(16, R"({"kind": "fat-tre", "levels": [{}]})"), "/network/kind");
  EXPECT_EQ(pointer(16, R"({"kind": "fat-tree", "rails": 3, "levels": [{}]})"), "/network/rails");
  EXPECT_EQ(pointer(16, R"({"kind": "fat-tree", "rails": 8, "levels": [{}]})"), "/network/rails");
  EXPECT_EQ(pointer(17, kRails), "/network/levels/1/joins") << "16 of 17 nodes are joined";
  EXPECT_EQ(levels("[]"), "/network/levels");
  EXPECT_EQ(levels(R"([{"joins": 0}])"), "/network/levels/0/joins");
  EXPECT_EQ(levels(R"([{"joins": 4}, {}])"), "/network/levels/0") << "no uplinks";
  EXPECT_EQ(levels(R"([{"joins": 1, "oversubscription": 3}, {}])"),
            "/network/levels/0/oversubscription")
      << "8 / 3 uplinks";
  EXPECT_EQ(levels(R"([{"joins": 4, "uplinks": 1, "oversubscription": 3}, {}])"),
            "/network/levels/0");
  EXPECT_EQ(levels(R"([{"joins": 4, "uplinks": 1}, {"uplinks": 3}])"), "/network/levels/1/uplinks");
  const auto cables = [&](std::string_view text) {
    return pointer(2, R"({"kind": "cables", "cables": [)" + std::string(text) + "]}");
  };
  EXPECT_EQ(cables(""), "/network/cables");
  EXPECT_EQ(cables(R"({"from": "node 2 port 0", "to": "a", "bytes_per_second": 1})"),
            "/network/cables/0/from");
  EXPECT_EQ(cables(R"({"from": "node 0 port 0", "to": "a", "bytes_per_second": 0})"),
            "/network/cables/0/bytes_per_second");
  EXPECT_EQ(cables(R"({"from": "node 0 port 0", "to": "node 1 port 0", "bytes_per_second": 1})"),
            "/network/cables")
      << "port 1 of node 0 is left out";
}

TEST(Network, SharesMaxMinAlone) {
  Json document = eight_a_node(16, kRails);
  document["across"]["sharing"] = "fair";
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/across/sharing");
  // Without a network too, ports that share max-min go together.
  document.erase("network");
  document["inside"]["sharing"] = "max-min";
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/across/sharing");
  document["across"]["sharing"] = "none";
  EXPECT_EQ(read(document).across.sharing, Sharing::None);
}

}  // namespace network_test
}  // namespace pipewright
