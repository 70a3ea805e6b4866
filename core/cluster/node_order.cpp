#include "core/cluster/node_order.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostKinds = 4;

bool alike(const PortSpec& a, const PortSpec& b) {
  return a.latency == b.latency && a.bytes_per_second == b.bytes_per_second &&
         a.sharing == b.sharing;
}

bool alike(const NodeKind& a, const NodeKind& b) {
  return a.device.kind == b.device.kind && a.device.model == b.device.model &&
         a.device.memory == b.device.memory && a.device.flops == b.device.flops &&
         alike(a.inside, b.inside) && alike(a.across, b.across);
}

/// For each of the cluster's kinds the first that is like it.
std::vector<int> first_alike(const Cluster& cluster) {
  std::vector<int> firsts;
  for (const NodeKind& kind : cluster.kinds) {
    const auto first = std::find_if(cluster.kinds.begin(), cluster.kinds.end(),
                                    [&](const NodeKind& other) { return alike(other, kind); });
    firsts.push_back(static_cast<int>(first - cluster.kinds.begin()));
  }
  return firsts;
}

}  // namespace

std::vector<NodeOrder> node_orders(const Cluster& cluster) {
  NodeOrder order = first_alike(cluster);
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<NodeOrder> orders{{}};
  if (order.size() > kMostKinds) return orders;
  const std::vector<int> own = nodes_in_order(cluster, {});
  do {
    if (nodes_in_order(cluster, order) != own) orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

std::vector<int> nodes_in_order(const Cluster& cluster, const NodeOrder& order) {
  std::vector<int> nodes;
  if (order.empty()) {
    for (int node = 0; node < cluster.nodes; ++node) nodes.push_back(node);
    return nodes;
  }
  const std::vector<int> firsts = first_alike(cluster);
  for (const int wanted : order) {
    int node = 0;
    for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
      for (int n = 0; n < cluster.kinds[k].nodes; ++n, ++node) {
        if (firsts[k] == wanted) nodes.push_back(node);
      }
    }
  }
  return nodes;
}

std::string to_text(const NodeOrder& order) {
  if (order.empty()) return "file";
  std::string text;
  for (const int kind : order) text += (text.empty() ? "" : "-") + std::to_string(kind);
  return text;
}

NodeOrder read_node_order(const Cluster& cluster, std::string_view text) {
  const std::vector<NodeOrder> orders = node_orders(cluster);
  std::string list;
  for (const NodeOrder& order : orders) {
    if (to_text(order) == text) return order;
    list += (list.empty() ? "" : ", ") + to_text(order);
  }
  const bool has_one = orders.size() == 1;
  throw InputError("expected an order of the nodes' kinds, " + list +
                   (has_one ? " (the only one of this cluster)" : "") + ", found \"" +
                   std::string(text) + "\"");
}

std::string in_words(const Cluster& cluster, const NodeOrder& order) {
  std::string text;
  for (std::size_t k = 0; k < order.size(); ++k) {
    text += k == 0 ? "the " : k == 1 ? " first, then the " : ", then the ";
    text += cluster.kinds[static_cast<std::size_t>(order[k])].device.model;
  }
  return text;
}

}  // namespace pipewright
