// Clusters whose nodes are of several kinds.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/cluster/cluster.hpp"

namespace pipewright {
namespace {

/// The slower of two ports in every respect; one that is not there does not count.
PortSpec slower(const PortSpec& a, const PortSpec& b) {
  if (a.bytes_per_second <= 0) return b;
  if (b.bytes_per_second <= 0) return a;
  PortSpec port = a;
  port.latency = std::max(a.latency, b.latency);
  port.bytes_per_second = std::min(a.bytes_per_second, b.bytes_per_second);
  if (b.sharing != Sharing::None) port.sharing = b.sharing;
  return port;
}

}  // namespace

NodeKind kind_of_node(const Cluster& cluster, int node) {
  PIPEWRIGHT_ASSERT(node >= 0 && node < cluster.nodes, "the cluster has no such node");
  for (const NodeKind& kind : cluster.kinds) {
    if (node < kind.nodes) return kind;
    node -= kind.nodes;
  }
  return {cluster.nodes, cluster.device, cluster.inside, cluster.across};
}

void summarise_kinds(Cluster& cluster) {
  PIPEWRIGHT_ASSERT(!cluster.kinds.empty(), "a cluster of several kinds of nodes has none");
  const auto slowest = std::min_element(
      cluster.kinds.begin(), cluster.kinds.end(),
      [](const NodeKind& a, const NodeKind& b) { return a.device.flops < b.device.flops; });
  cluster.nodes = 0;
  cluster.device = slowest->device;
  cluster.inside = slowest->inside;
  cluster.across = slowest->across;
  for (const NodeKind& kind : cluster.kinds) {
    cluster.nodes += kind.nodes;
    cluster.device.memory = std::min(cluster.device.memory, kind.device.memory);
    cluster.inside = slower(cluster.inside, kind.inside);
    cluster.across = slower(cluster.across, kind.across);
  }
}

}  // namespace pipewright
