// A graph of operators to be spread over accelerators and CPUs, as the instances published with
// "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS
// 2020) write it. Plain data; latencies and costs share one unit, which the file does not name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright::planner {

struct OperatorNode {
  int id = 0;  // as the file numbers it
  std::string name;
  bool backward = false;
  bool runs_on_accelerator = true;
  double cpu_latency = 0;
  double accelerator_latency = 0;
  double bytes = 0;
  int colour = 0;  // nodes of one colour share a device; dense, each node without one has its own
  /// Time to move the output between an accelerator and host memory.
  double output_cost = 0;
};

/// `source` and `target` are indices of nodes, not the ids of the file.
struct OperatorEdge {
  int source = 0, target = 0;
};

struct OperatorGraph {
  int accelerators = 0, cpus = 0;
  double accelerator_bytes = 0;
  std::vector<OperatorNode> nodes;
  std::vector<OperatorEdge> edges;
  int colours = 0;
};

/// Throws InputError for unknown keys, ids that are missing or double, a source whose edges
/// disagree about the cost, a cycle, and an edge from a backward to a forward node.
OperatorGraph read_operator_graph(const JsonCursor& document);

/// One device and what it was given.
struct DeviceShare {
  bool accelerator = true;
  double load = 0;
  double bytes = 0;
  std::vector<int> nodes;  // indices, ascending
};

/// The load of a device with these nodes: on a CPU the sum of latencies; on an accelerator also the
/// cost of each node whose output leaves, once, and of each node outside whose output comes in.
double device_load(const OperatorGraph& graph, std::span<const int> nodes, bool accelerator);

}  // namespace pipewright::planner
