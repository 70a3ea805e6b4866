#include "planner/graph_partition/instance.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostInstanceDevices = 64;
constexpr double kMostNumber = 1e18;

/// The published files write true, false, 0 and 1.
bool read_flag(const JsonCursor& value) {
  return value.value().is_boolean() ? value.boolean() : value.integer(0, 1) == 1;
}

int read_id(const JsonCursor& value) {
  return static_cast<int>(value.integer(0, std::numeric_limits<int>::max()));
}

OperatorNode read_node(const JsonCursor& value, std::map<int, int>& colours, int& fresh) {
  value.only({"id", "name", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode",
              "colorClass", "size", "layerId"});
  OperatorNode node;
  node.id = read_id(value.at("id"));
  if (const auto name = value.find("name")) node.name = name->string();
  node.runs_on_accelerator = read_flag(value.at("supportedOnFpga"));
  node.backward = read_flag(value.at("isBackwardNode"));
  node.cpu_latency = value.at("cpuLatency").number(0, kMostNumber);
  node.accelerator_latency = value.at("fpgaLatency").number(0, kMostNumber);
  if (const auto size = value.find("size")) node.bytes = size->number(0, kMostNumber);
  node.colour = fresh;
  if (const auto colour = value.find("colorClass")) {
    const int written = static_cast<int>(
        colour->integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
    node.colour = colours.try_emplace(written, fresh).first->second;
  }
  if (node.colour == fresh) ++fresh;
  return node;
}

void read_nodes(const JsonCursor& list, OperatorGraph& graph,
                std::unordered_map<int, int>& index_of_id) {
  std::map<int, int> colours;
  for (const JsonCursor& value : list.elements()) {
    graph.nodes.push_back(read_node(value, colours, graph.colours));
    const int index = static_cast<int>(graph.nodes.size()) - 1;
    if (!index_of_id.emplace(graph.nodes.back().id, index).second) {
      value.at("id").fail("an id that no node before it has");
    }
  }
  if (graph.nodes.empty()) list.fail("at least one node");
}

int read_end(const JsonCursor& value, const std::unordered_map<int, int>& index_of_id) {
  const auto found = index_of_id.find(read_id(value));
  if (found == index_of_id.end()) value.fail("the id of a node");
  return found->second;
}

void read_edges(const JsonCursor& list, OperatorGraph& graph,
                const std::unordered_map<int, int>& index_of_id) {
  std::vector<bool> costed(graph.nodes.size(), false);
  for (const JsonCursor& value : list.elements()) {
    value.only({"sourceId", "destId", "cost", "size"});
    const OperatorEdge edge{read_end(value.at("sourceId"), index_of_id),
                            read_end(value.at("destId"), index_of_id)};
    OperatorNode& source = graph.nodes[static_cast<std::size_t>(edge.source)];
    const double cost = value.at("cost").number(0, kMostNumber);
    if (costed[static_cast<std::size_t>(edge.source)] &&
        std::abs(cost - source.output_cost) > 1e-6) {
      value.at("cost").fail("the cost that the source's other edges have");
    }
    if (!costed[static_cast<std::size_t>(edge.source)]) source.output_cost = cost;
    costed[static_cast<std::size_t>(edge.source)] = true;
    if (source.backward && !graph.nodes[static_cast<std::size_t>(edge.target)].backward) {
      value.fail("no edge from a backward node to a forward node");
    }
    graph.edges.push_back(edge);
  }
}

bool has_cycle(const OperatorGraph& graph) {
  std::vector<std::vector<int>> after(graph.nodes.size());
  std::vector<int> missing(graph.nodes.size(), 0);
  for (const OperatorEdge& edge : graph.edges) {
    after[static_cast<std::size_t>(edge.source)].push_back(edge.target);
    ++missing[static_cast<std::size_t>(edge.target)];
  }
  std::vector<int> ready;
  for (std::size_t node = 0; node < missing.size(); ++node) {
    if (missing[node] == 0) ready.push_back(static_cast<int>(node));
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const int node = ready.back();
    ready.pop_back();
    ++done;
    for (const int next : after[static_cast<std::size_t>(node)]) {
      if (--missing[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
  }
  return done < graph.nodes.size();
}

}  // namespace

OperatorGraph read_operator_graph(const JsonCursor& document) {
  document.only({"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"});
  OperatorGraph graph;
  graph.accelerator_bytes = document.at("maxSizePerFPGA").number(0, kMostNumber);
  graph.accelerators = read_count(document.at("maxFPGAs"), 0, kMostInstanceDevices);
  graph.cpus = read_count(document.at("maxCPUs"), 0, kMostInstanceDevices);
  if (graph.accelerators + graph.cpus == 0) document.at("maxCPUs").fail("at least one device");
  std::unordered_map<int, int> index_of_id;
  read_nodes(document.at("nodes"), graph, index_of_id);
  read_edges(document.at("edges"), graph, index_of_id);
  if (has_cycle(graph)) document.at("edges").fail("a graph without cycles");
  return graph;
}

double device_load(const OperatorGraph& graph, std::span<const int> nodes, bool accelerator) {
  std::vector<bool> here(graph.nodes.size(), false), pays(graph.nodes.size(), false);
  double load = 0;
  for (const int index : nodes) {
    const OperatorNode& node = graph.nodes[static_cast<std::size_t>(index)];
    here[static_cast<std::size_t>(index)] = true;
    load += accelerator ? node.accelerator_latency : node.cpu_latency;
  }
  if (!accelerator) return load;
  for (const OperatorEdge& edge : graph.edges) {
    const auto source = static_cast<std::size_t>(edge.source);
    if (here[source] == here[static_cast<std::size_t>(edge.target)] || pays[source]) continue;
    pays[source] = true;
    load += graph.nodes[source].output_cost;
  }
  return load;
}

}  // namespace pipewright::planner
