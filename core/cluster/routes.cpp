// From a cluster to the routes between ranks: which ports a transfer goes through.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/collectives.hpp"
#include "core/cluster/network_paths.hpp"

namespace pipewright {

namespace {

/// Makes a link when the first route needs it.
class LinkTable {
 public:
  LinkTable(const Cluster& cluster, std::vector<Link>& links) : cluster_(cluster), links_(links) {}

  std::uint32_t port(int device, bool outgoing, bool inside, const PortSpec& port) {
    // Devices that share a port to the network use the link of the first of them.
    if (!inside) device = first_with_port(device);
    const int key = device * 4 + (outgoing ? 2 : 0) + (inside ? 1 : 0);
    const auto [entry, is_new] = ports_.try_emplace(key, next());
    if (is_new) {
      links_.push_back({"device " + std::to_string(device) + (outgoing ? " out" : " in") +
                            (inside ? "" : ", network"),
                        port.bytes_per_second, port.sharing});
    }
    return entry->second;
  }
  std::uint32_t hop(const NetworkHop& hop, const NetworkPaths& paths) {
    const auto [entry, is_new] = hops_.try_emplace(hop.place, next());
    if (is_new) links_.push_back({paths.name_of(hop.place), hop.bytes_per_second, Sharing::MaxMin});
    return entry->second;
  }

 private:
  std::uint32_t next() const { return static_cast<std::uint32_t>(links_.size()); }
  int first_with_port(int device) const {
    const int local = device % cluster_.devices_per_node;
    return device - local + first_on_port(cluster_, port_of(cluster_, local));
  }

  const Cluster& cluster_;
  std::vector<Link>& links_;
  std::map<int, std::uint32_t> ports_;
  std::map<NetworkHop::Place, std::uint32_t> hops_;
};

/// The ports of every node, looked up once: routes are as many as pairs of ranks.
class NodePorts {
 public:
  explicit NodePorts(const Cluster& cluster) : alike_(cluster.kinds.empty()) {
    if (alike_) ports_.push_back({cluster.inside, cluster.across});
    for (const NodeKind& kind : cluster.kinds) {
      ports_.insert(ports_.end(), static_cast<std::size_t>(kind.nodes), {kind.inside, kind.across});
    }
  }

  const PortSpec& inside(int node) const { return at(node).first; }
  const PortSpec& across(int node) const { return at(node).second; }

 private:
  const std::pair<PortSpec, PortSpec>& at(int node) const {
    return ports_[alike_ ? 0 : static_cast<std::size_t>(node)];
  }

  bool alike_;
  std::vector<std::pair<PortSpec, PortSpec>> ports_;
};

RouteCosts way(const PortSpec& out, const PortSpec& in) {
  return {
      std::max(out.latency, in.latency), std::min(out.bytes_per_second, in.bytes_per_second), {}};
}

RouteCosts route_between(int source, int destination, int devices_per_node, const NodePorts& ports,
                         LinkTable& links) {
  if (source == destination) return {};  // the data is there already
  const int from = source / devices_per_node, to = destination / devices_per_node;
  const bool inside = from == to;
  const PortSpec& out = inside ? ports.inside(from) : ports.across(from);
  const PortSpec& in = inside ? ports.inside(from) : ports.across(to);
  RouteCosts route = way(out, in);
  if (out.sharing != Sharing::None || in.sharing != Sharing::None) route.links.reserve(2);
  if (out.sharing != Sharing::None) route.links.push_back(links.port(source, true, inside, out));
  if (in.sharing != Sharing::None)
    route.links.push_back(links.port(destination, false, inside, in));
  return route;
}

/// Over the ports of both ends and what lies between them; `links`: where it is wanted.
RouteCosts network_route(const Cluster& cluster, int source, int destination, NetworkPaths& paths,
                         LinkTable* links) {
  const NetworkPath path = paths.between(source, destination);
  RouteCosts route = way(cluster.across, cluster.across);
  const auto over_port = [&](int device, bool outgoing, bool inside) {
    const PortSpec& port = inside ? cluster.inside : cluster.across;
    route.bytes_per_second = std::min(route.bytes_per_second, port.bytes_per_second);
    if (links != nullptr) route.links.push_back(links->port(device, outgoing, inside, port));
  };
  if (path.leaves_by != source) {
    route.latency += cluster.inside.latency;
    over_port(source, true, true);
    over_port(path.leaves_by, false, true);
  }
  over_port(path.leaves_by, true, false);
  for (const NetworkHop& hop : path.hops) {
    route.latency += hop.latency;
    route.bytes_per_second = std::min(route.bytes_per_second, hop.bytes_per_second);
    if (links != nullptr) route.links.push_back(links->hop(hop, paths));
  }
  over_port(path.arrives_by, false, false);
  return route;
}

bool is_over_network(const Cluster& cluster, int source, int destination) {
  return cluster.network &&
         source / cluster.devices_per_node != destination / cluster.devices_per_node;
}

}  // namespace

RouteCosts way_between(const Cluster& cluster, int source, int destination) {
  if (source == destination) return {};
  if (is_over_network(cluster, source, destination)) {
    NetworkPaths paths(cluster);
    return network_route(cluster, source, destination, paths, nullptr);
  }
  const int from = source / cluster.devices_per_node, to = destination / cluster.devices_per_node;
  if (cluster.kinds.empty()) {
    const PortSpec& port = from == to ? cluster.inside : cluster.across;
    return way(port, port);
  }
  const NodeKind sending = kind_of_node(cluster, from), receiving = kind_of_node(cluster, to);
  return from == to ? way(sending.inside, sending.inside) : way(sending.across, receiving.across);
}

bool has_routes_of_edges(const Cluster& cluster) {
  return cluster.nodes > 1 || cluster.inside.sharing != Sharing::None;
}

void set_routes(CostTable& costs, const Cluster& cluster, const std::vector<int>& device_of_rank) {
  for (const int device : device_of_rank) {
    PIPEWRIGHT_ASSERT(device >= 0 && device < cluster.devices(),
                      "a rank sits on a device that the cluster does not have");
  }
  set_collectives(costs, cluster, device_of_rank);
  costs.links.clear();
  costs.route_of_edge.clear();
  costs.ranks_of_replica = 0;
  costs.ranks_of_entry = 1;
  costs.every_route = {cluster.inside.latency, cluster.inside.bytes_per_second, {}};
  if (!has_routes_of_edges(cluster)) return;
  const NodePorts ports(cluster);
  LinkTable links(cluster, costs.links);
  std::optional<NetworkPaths> paths;
  if (cluster.network) paths.emplace(cluster);
  costs.route_of_edge.reserve(device_of_rank.size() * device_of_rank.size());
  for (const int source : device_of_rank) {
    for (const int destination : device_of_rank) {
      costs.route_of_edge.push_back(
          is_over_network(cluster, source, destination)
              ? network_route(cluster, source, destination, *paths, &links)
              : route_between(source, destination, cluster.devices_per_node, ports, links));
    }
  }
}

}  // namespace pipewright
