// Operator graphs: the optima of the published exact program, and one that it did not find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "core/base/json.hpp"
#include "planner/graph_partition/optimum.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace graph_partition_test {

planner::OperatorGraph read_graph(const std::filesystem::path& path) {
  const Json document = parse_json(golden::text_of(path), path.string());
  return planner::read_operator_graph(JsonCursor(document, path.string()));
}

/// Every node once, colours together, memory and devices kept, loads as the model says.
void expect_valid(const planner::OperatorGraph& graph, const planner::GraphPartition& partition) {
  std::vector<int> device_of(graph.nodes.size(), -1);
  int accelerators = 0, cpus = 0;
  double largest = 0;
  for (std::size_t device = 0; device < partition.devices.size(); ++device) {
    const planner::DeviceShare& share = partition.devices[device];
    (share.accelerator ? accelerators : cpus) += 1;
    double bytes = 0;
    for (const int node : share.nodes) {
      EXPECT_EQ(device_of[static_cast<std::size_t>(node)], -1);
      device_of[static_cast<std::size_t>(node)] = static_cast<int>(device);
      bytes += graph.nodes[static_cast<std::size_t>(node)].bytes;
    }
    if (share.accelerator) {
      EXPECT_LE(bytes, graph.accelerator_bytes);
    }
    largest = std::max(largest, planner::device_load(graph, share.nodes, share.accelerator));
  }
  EXPECT_LE(accelerators, graph.accelerators);
  EXPECT_LE(cpus, graph.cpus);
  EXPECT_EQ(std::count(device_of.begin(), device_of.end(), -1), 0);
  EXPECT_DOUBLE_EQ(largest, partition.largest_load);
  std::set<std::pair<int, int>> colour_devices;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    colour_devices.emplace(graph.nodes[node].colour, device_of[node]);
  }
  EXPECT_EQ(static_cast<int>(colour_devices.size()), graph.colours);
  // Forward, the devices stand in a pipeline.
  for (const planner::OperatorEdge& edge : graph.edges) {
    if (graph.nodes[static_cast<std::size_t>(edge.target)].backward) continue;
    EXPECT_LE(device_of[static_cast<std::size_t>(edge.source)],
              device_of[static_cast<std::size_t>(edge.target)]);
  }
}

TEST(GraphPartition, TheOptimaAreThoseOfThePublishedExactProgram) {
  const auto folder = golden::golden_dir() / "partition";
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "optima.json");
  const Json optima = parse_json(golden::text_of(folder / "optima.json"), "optima.json");
  int compared = 0;
  for (const Json& row : optima.at("rows")) {
    if (row.at(1).is_null()) continue;
    const std::string name = row.at(0).get<std::string>();
    SCOPED_TRACE(name);
    const auto graph = read_graph(folder / (name + ".json"));
    const auto partition = planner::optimal_graph_partition(graph);
    ASSERT_TRUE(partition.has_value());
    const double optimum = row.at(1).get<double>();
    EXPECT_NEAR(partition->largest_load, optimum, 1e-9 * optimum);
    EXPECT_NEAR(partition->lower_bound, optimum, 1e-9 * optimum);
    expect_valid(graph, *partition);
    ++compared;
  }
  EXPECT_GE(compared, 5);
}

TEST(GraphPartition, InceptionV3WhichHadNoPublishedOptimumIsSolvedWithAProof) {
  const auto path = golden::golden_dir() / "partition" / "LayerGraphs_inceptionv3_inference.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  const auto graph = read_graph(path);
  const auto partition = planner::optimal_graph_partition(graph);
  ASSERT_TRUE(partition.has_value());
  expect_valid(graph, *partition);
  EXPECT_NEAR(partition->lower_bound, partition->largest_load, 1e-9 * partition->largest_load);
  // The published program counted the same ideals before it was stopped.
  EXPECT_EQ(partition->ideals, 36596);
  EXPECT_NEAR(partition->largest_load, 51.551863586, 1e-8);
}

/// The training graph to an inference graph, as the published one of resnet50 relates to its
/// forward part: each node has a gradient of its colour and size, each edge one between these.
/// `slower`: what a node's gradient takes, in the node's own time.
planner::OperatorGraph training_of(planner::OperatorGraph graph,
                                   const std::function<double()>& slower) {
  const std::size_t nodes = graph.nodes.size(), edges = graph.edges.size();
  for (std::size_t i = 0; i < nodes; ++i) {
    planner::OperatorNode gradient = graph.nodes[i];
    gradient.id += 10'000;
    gradient.backward = true;
    const double times = slower();
    gradient.accelerator_latency *= times;
    gradient.cpu_latency *= times;
    graph.nodes.push_back(gradient);
  }
  for (std::size_t i = 0; i < edges; ++i) {
    graph.edges.push_back({graph.edges[i].source + static_cast<int>(nodes),
                           graph.edges[i].target + static_cast<int>(nodes)});
  }
  return graph;
}

/// Of each colour of a published training graph, the gradient's time over the node's.
std::vector<double> gradient_times(const planner::OperatorGraph& graph) {
  std::map<int, std::pair<double, double>> of_colour;
  for (const planner::OperatorNode& node : graph.nodes) {
    auto& [forward, backward] = of_colour[node.colour];
    (node.backward ? backward : forward) += node.accelerator_latency;
  }
  std::vector<double> times;
  for (const auto& [colour, both] : of_colour) {
    if (both.first > 0) times.push_back(both.second / both.first);
  }
  return times;
}

TEST(GraphPartition, TrainingInceptionV3WithGradientsLikeResNetsIsSolvedWithAProof) {
  const auto folder = golden::golden_dir() / "partition";
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "LayerGraphs_inceptionv3_inference.json");
  const auto forward = read_graph(folder / "LayerGraphs_inceptionv3_inference.json");
  const auto times = gradient_times(read_graph(folder / "LayerGraphs_resnet50_training.json"));
  std::mt19937_64 random(1);
  const auto graph = training_of(forward, [&] { return times[random() % times.size()]; });
  const auto partition = planner::optimal_graph_partition(graph);
  ASSERT_TRUE(partition.has_value());
  expect_valid(graph, *partition);
  EXPECT_NEAR(partition->lower_bound, partition->largest_load, 1e-9 * partition->largest_load);
  EXPECT_EQ(partition->ideals, 36596);
}

}  // namespace graph_partition_test
}  // namespace pipewright
