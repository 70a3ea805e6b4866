// The optimum of small random operator graphs is that of trying every assignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "planner/graph_partition/optimum.hpp"

namespace pipewright {
namespace graph_partition_test {

using planner::OperatorGraph;
using planner::OperatorNode;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

int draw(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

/// Forward nodes with edges to later ones, some of one colour; with `training` a backward node for
/// most of them, edges mirrored, and a few from forward to backward.
OperatorGraph random_graph(std::mt19937& random, bool training) {
  OperatorGraph graph;
  const int forward = training ? draw(random, 2, 5) : draw(random, 2, 7);
  graph.accelerators = draw(random, 0, 3);
  graph.cpus = draw(random, graph.accelerators == 0 ? 1 : 0, graph.accelerators == 3 ? 1 : 2);
  graph.colours = draw(random, std::max(1, forward - 2), forward);
  graph.accelerator_bytes = draw(random, 4, 40);
  for (int index = 0; index < forward; ++index) {
    OperatorNode node;
    node.colour = index < graph.colours ? index : draw(random, 0, graph.colours - 1);
    node.cpu_latency = draw(random, 0, 3) == 0 ? 0 : draw(random, 0, 20);
    node.accelerator_latency = node.cpu_latency == 0 ? 0 : draw(random, 0, 6);
    node.runs_on_accelerator = draw(random, 0, 7) != 0;
    node.bytes = draw(random, 0, 6);
    node.output_cost = draw(random, 0, 4) * 0.25;
    graph.nodes.push_back(node);
  }
  const auto density = draw(random, 2, 5);
  for (int to = 1; to < forward; ++to) {
    for (int from = 0; from < to; ++from) {
      if (draw(random, 0, density) == 0) graph.edges.push_back({from, to});
    }
  }
  if (!training) return graph;
  std::vector<int> mirror(at(forward), -1);
  for (int index = 0; index < forward; ++index) {
    if (draw(random, 0, 5) == 0) continue;
    OperatorNode node = graph.nodes[at(index)];
    node.backward = true;
    if (draw(random, 0, 5) == 0) node.colour = graph.colours++;  // no forward node to go with
    node.accelerator_latency = draw(random, 0, 9);
    node.output_cost = draw(random, 0, 4) * 0.25;
    mirror[at(index)] = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back(node);
    if (draw(random, 0, 2) == 0) graph.edges.push_back({index, mirror[at(index)]});
  }
  const auto edges = graph.edges;
  for (const auto& edge : edges) {
    if (edge.source >= forward || edge.target >= forward) continue;
    const int from = mirror[at(edge.target)], to = mirror[at(edge.source)];
    if (from >= 0 && to >= 0) graph.edges.push_back({from, to});
  }
  return graph;
}

/// Is there an order of devices in which every forward edge goes to the same or a later one? An
/// edge between backward nodes of which one has no forward node of its colour counts the other way
/// round.
bool forms_a_pipeline(const OperatorGraph& graph, const std::vector<int>& device_of, int devices) {
  std::vector<std::vector<bool>> reaches(at(devices), std::vector<bool>(at(devices), false));
  std::vector<bool> has_forward(at(graph.colours), false);
  for (const OperatorNode& node : graph.nodes) {
    if (!node.backward) has_forward[at(node.colour)] = true;
  }
  for (const auto& edge : graph.edges) {
    const OperatorNode& source = graph.nodes[at(edge.source)];
    const OperatorNode& target = graph.nodes[at(edge.target)];
    const int from = device_of[at(source.colour)], to = device_of[at(target.colour)];
    if (from == to) continue;
    if (!target.backward) {
      reaches[at(from)][at(to)] = true;
    } else if (source.backward &&
               !(has_forward[at(source.colour)] && has_forward[at(target.colour)])) {
      reaches[at(to)][at(from)] = true;
    }
  }
  for (int via = 0; via < devices; ++via) {
    for (int from = 0; from < devices; ++from) {
      for (int to = 0; to < devices; ++to) {
        if (reaches[at(from)][at(via)] && reaches[at(via)][at(to)])
          reaches[at(from)][at(to)] = true;
      }
    }
  }
  for (int device = 0; device < devices; ++device) {
    if (reaches[at(device)][at(device)]) return false;
  }
  return true;
}

/// Largest load of an assignment of colours; infinite where it is not allowed. What each device
/// pays is counted node by node: once to send, once for every device that receives.
double largest_load(const OperatorGraph& graph, const std::vector<int>& device_of) {
  const int devices = graph.accelerators + graph.cpus;
  std::vector<double> load(at(devices), 0), bytes(at(devices), 0);
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    const OperatorNode& node = graph.nodes[index];
    const int device = device_of[at(node.colour)];
    const bool accelerator = device < graph.accelerators;
    if (accelerator && !node.runs_on_accelerator) return std::numeric_limits<double>::infinity();
    load[at(device)] += accelerator ? node.accelerator_latency : node.cpu_latency;
    bytes[at(device)] += node.bytes;
    std::vector<bool> hears(at(devices), false);
    for (const auto& edge : graph.edges) {
      if (at(edge.source) != index) continue;
      const int target = device_of[at(graph.nodes[at(edge.target)].colour)];
      if (target != device) hears[at(target)] = true;
    }
    bool sends = false;
    for (int other = 0; other < devices; ++other) {
      if (!hears[at(other)]) continue;
      sends = true;
      if (other < graph.accelerators) load[at(other)] += node.output_cost;
    }
    if (sends && accelerator) load[at(device)] += node.output_cost;
  }
  for (int device = 0; device < graph.accelerators; ++device) {
    if (bytes[at(device)] > graph.accelerator_bytes) return std::numeric_limits<double>::infinity();
  }
  if (!forms_a_pipeline(graph, device_of, devices)) return std::numeric_limits<double>::infinity();
  return *std::max_element(load.begin(), load.end());
}

double best_of_all(const OperatorGraph& graph) {
  const int devices = graph.accelerators + graph.cpus;
  std::vector<int> device_of(at(graph.colours), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    best = std::min(best, largest_load(graph, device_of));
    std::size_t digit = 0;
    while (digit < device_of.size() && ++device_of[digit] == devices) device_of[digit++] = 0;
    if (digit == device_of.size()) return best;
  }
}

struct Tally {
  int solved = 0, impossible = 0;
};

Tally compare(unsigned seed, int graphs, bool training) {
  std::mt19937 random(seed);
  Tally tally;
  for (int number = 0; number < graphs; ++number) {
    const OperatorGraph graph = random_graph(random, training);
    const double best = best_of_all(graph);
    const auto found = planner::optimal_graph_partition(graph);
    if (best == std::numeric_limits<double>::infinity()) {
      EXPECT_FALSE(found.has_value()) << "graph " << number;
      ++tally.impossible;
      continue;
    }
    EXPECT_TRUE(found.has_value()) << "graph " << number;
    if (!found) continue;
    EXPECT_NEAR(found->largest_load, best, 1e-9 * (1 + best)) << "graph " << number;
    EXPECT_NEAR(found->lower_bound, best, 1e-9 * (1 + best)) << "graph " << number;
    ++tally.solved;
  }
  return tally;
}

TEST(GraphPartition, InferenceGraphsHaveTheOptimumOfAllAssignments) {
  const Tally tally = compare(1, 3000, false);
  EXPECT_GT(tally.solved, 1000);
  EXPECT_GT(tally.impossible, 30);
}

TEST(GraphPartition, TrainingGraphsHaveTheOptimumOfAllAssignments) {
  const Tally tally = compare(2, 2000, true);
  EXPECT_GT(tally.solved, 1000);
  EXPECT_GT(tally.impossible, 30);
}

}  // namespace graph_partition_test
}  // namespace pipewright
