#include "planner/graph_partition/elements.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "planner/base/index.hpp"

namespace pipewright::planner {
namespace {

using Pairs = std::set<std::pair<int, int>>;

/// Direct "comes before" between groups, where group_of maps a colour to its group.
Pairs order_between(const OperatorGraph& graph, const std::vector<int>& group_of) {
  std::vector<bool> has_forward(at(graph.colours), false);
  for (const OperatorNode& node : graph.nodes) {
    if (!node.backward) has_forward[at(node.colour)] = true;
  }
  Pairs order;
  for (const OperatorEdge& edge : graph.edges) {
    const OperatorNode& source = graph.nodes[at(edge.source)];
    const OperatorNode& target = graph.nodes[at(edge.target)];
    const int from = group_of[at(source.colour)], to = group_of[at(target.colour)];
    if (from == to) continue;
    if (!target.backward) {
      order.emplace(from, to);
    } else if (source.backward &&
               (!has_forward[at(source.colour)] || !has_forward[at(target.colour)])) {
      order.emplace(to, from);
    }
  }
  return order;
}

std::vector<std::vector<int>> lists_of(const Pairs& pairs, int count, bool reversed) {
  std::vector<std::vector<int>> lists(at(count));
  for (const auto& [from, to] : pairs) {
    lists[at(reversed ? to : from)].push_back(reversed ? from : to);
  }
  return lists;
}

/// Depth first from `root`; appends what was not seen before to `left`, children before parents.
void visit(const std::vector<std::vector<int>>& next, int root, std::vector<bool>& seen,
           std::vector<int>& left) {
  std::vector<std::pair<int, std::size_t>> path;
  seen[at(root)] = true;
  path.emplace_back(root, 0);
  while (!path.empty()) {
    auto& [node, tried] = path.back();
    if (tried == next[at(node)].size()) {
      left.push_back(node);
      path.pop_back();
      continue;
    }
    const int child = next[at(node)][tried++];
    if (seen[at(child)]) continue;
    seen[at(child)] = true;
    path.emplace_back(child, 0);
  }
}

/// Strongly connected components by two depth-first passes (Kosaraju), numbered in a topological
/// order.
std::vector<int> components_of(const Pairs& order, int count) {
  const auto next = lists_of(order, count, false), previous = lists_of(order, count, true);
  std::vector<bool> seen(at(count), false);
  std::vector<int> finished;
  for (int node = 0; node < count; ++node) {
    if (!seen[at(node)]) visit(next, node, seen, finished);
  }
  std::vector<int> component(at(count), 0);
  seen.assign(at(count), false);
  int components = 0;
  for (auto node = finished.rbegin(); node != finished.rend(); ++node) {
    if (seen[at(*node)]) continue;
    std::vector<int> members;
    visit(previous, *node, seen, members);
    for (const int member : members) component[at(member)] = components;
    ++components;
  }
  return component;
}

/// Nets with the same pins are one.
std::vector<Net> nets_of(const OperatorGraph& graph, const std::vector<int>& group_of) {
  std::vector<std::set<int>> pins(graph.nodes.size());
  for (const OperatorEdge& edge : graph.edges) {
    for (const int end : {edge.source, edge.target}) {
      pins[at(edge.source)].insert(group_of[at(graph.nodes[at(end)].colour)]);
    }
  }
  std::map<std::vector<int>, double> costs;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    if (pins[node].size() < 2 || graph.nodes[node].output_cost <= 0) continue;
    costs[std::vector<int>(pins[node].begin(), pins[node].end())] += graph.nodes[node].output_cost;
  }
  std::vector<Net> nets;
  for (const auto& [members, cost] : costs) nets.push_back({cost, members});
  return nets;
}

ElementOrder grouped(const OperatorGraph& graph, const std::vector<int>& group_of, int groups) {
  ElementOrder order;
  order.elements.resize(at(groups));
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    const OperatorNode& node = graph.nodes[index];
    Element& element = order.elements[at(group_of[at(node.colour)])];
    element.cpu_latency += node.cpu_latency;
    element.accelerator_latency += node.accelerator_latency;
    element.bytes += node.bytes;
    element.runs_on_accelerator = element.runs_on_accelerator && node.runs_on_accelerator;
    element.nodes.push_back(static_cast<int>(index));
  }
  for (const auto& [from, to] : order_between(graph, group_of)) {
    order.elements[at(from)].after.push_back(to);
    order.elements[at(to)].before.push_back(from);
  }
  order.nets = nets_of(graph, group_of);
  for (std::size_t net = 0; net < order.nets.size(); ++net) {
    for (const int pin : order.nets[net].pins) {
      order.elements[at(pin)].nets.push_back(static_cast<int>(net));
    }
  }
  return order;
}

/// The neighbour that `index` may join for nothing; -1: none. It takes no time anywhere, hangs on
/// that neighbour alone and sends to or hears from nobody else unless through a net of the
/// neighbour's: a partition with the two apart stays one, with no larger load, when it moves over.
int free_company(const ElementOrder& order, int index, bool memory_is_plenty) {
  const Element& element = order.elements[at(index)];
  if (element.cpu_latency > 0 || element.accelerator_latency > 0) return -1;
  if (!memory_is_plenty && element.bytes > 0) return -1;
  if (element.before.size() + element.after.size() != 1) return -1;
  const int other = element.before.empty() ? element.after[0] : element.before[0];
  if (!element.runs_on_accelerator && order.elements[at(other)].runs_on_accelerator) return -1;
  for (const int net : element.nets) {
    const auto& pins = order.nets[at(net)].pins;
    if (!std::binary_search(pins.begin(), pins.end(), other)) return -1;
  }
  return other;
}

/// Renames the groups so that all who joined one another share a number.
int joined(std::vector<int>& group_of, const std::vector<int>& joins) {
  std::map<int, int> fresh;
  for (int& group : group_of) {
    while (joins[at(group)] != group) group = joins[at(group)];
    group = fresh.try_emplace(group, static_cast<int>(fresh.size())).first->second;
  }
  return static_cast<int>(fresh.size());
}

bool join_free_company(const ElementOrder& order, bool memory_is_plenty, std::vector<int>& group_of,
                       int& groups) {
  std::vector<int> joins(at(groups));
  std::iota(joins.begin(), joins.end(), 0);
  std::vector<bool> touched(at(groups), false);
  bool any = false;
  for (int index = 0; index < groups; ++index) {
    const int other = free_company(order, index, memory_is_plenty);
    // One that moves in this round is nobody's host in it: no two hosts in a ring.
    if (other < 0 || touched[at(index)] || joins[at(other)] != other) continue;
    joins[at(index)] = other;
    touched[at(other)] = true;
    any = true;
  }
  if (any) groups = joined(group_of, joins);
  return any;
}

}  // namespace

ElementOrder elements_of(const OperatorGraph& graph) {
  std::vector<int> group_of(at(graph.colours));
  std::iota(group_of.begin(), group_of.end(), 0);
  int groups = graph.colours;
  double bytes = 0;
  for (const OperatorNode& node : graph.nodes) bytes += node.bytes;
  while (true) {
    const std::vector<int> component = components_of(order_between(graph, group_of), groups);
    for (int& group : group_of) group = component[at(group)];
    groups = *std::max_element(group_of.begin(), group_of.end()) + 1;
    ElementOrder order = grouped(graph, group_of, groups);
    if (!join_free_company(order, bytes <= graph.accelerator_bytes, group_of, groups)) return order;
  }
}

}  // namespace pipewright::planner
