// From a cluster to the routes between ranks: which ports a transfer goes through.
#include <map>
#include <utility>

#include "core/cluster.hpp"
#include "core/error.hpp"

namespace pipewright {

namespace {

/// Makes a port's link when the first route needs it.
class PortLinks {
 public:
  explicit PortLinks(std::vector<Link>& links) : links_(links) {}

  std::uint32_t of(int device, bool outgoing, bool inside, const PortSpec& port) {
    const int key = device * 4 + (outgoing ? 2 : 0) + (inside ? 1 : 0);
    const auto [entry, is_new] =
        number_.try_emplace(key, static_cast<std::uint32_t>(links_.size()));
    if (is_new) {
      links_.push_back({"device " + std::to_string(device) + (outgoing ? " out" : " in") +
                            (inside ? "" : ", network"),
                        port.bytes_per_second, port.sharing});
    }
    return entry->second;
  }

 private:
  std::vector<Link>& links_;
  std::map<int, std::uint32_t> number_;
};

RouteCosts route_between(int source, int destination, const Cluster& cluster, PortLinks& links) {
  RouteCosts route;
  if (source == destination) {
    return route;  // the data is there already
  }
  const bool inside = source / cluster.devices_per_node == destination / cluster.devices_per_node;
  const PortSpec& port = inside ? cluster.inside : cluster.across;
  route.latency = port.latency;
  route.bytes_per_second = port.bytes_per_second;
  if (port.sharing != Sharing::None) {
    route.links = {links.of(source, true, inside, port),
                   links.of(destination, false, inside, port)};
  }
  return route;
}

}  // namespace

void set_routes(CostTable& costs, const Cluster& cluster, const std::vector<int>& device_of_rank) {
  for (const int device : device_of_rank) {
    PIPEWRIGHT_ASSERT(device >= 0 && device < cluster.devices(),
                      "a rank sits on a device that the cluster does not have");
  }
  costs.links.clear();
  costs.route_of_edge.clear();
  costs.every_route = {cluster.inside.latency, cluster.inside.bytes_per_second, {}};
  if (cluster.nodes == 1 && cluster.inside.sharing == Sharing::None) {
    return;  // all routes are equal
  }
  PortLinks links(costs.links);
  costs.route_of_edge.reserve(device_of_rank.size() * device_of_rank.size());
  for (const int source : device_of_rank) {
    for (const int destination : device_of_rank) {
      costs.route_of_edge.push_back(route_between(source, destination, cluster, links));
    }
  }
}

}  // namespace pipewright
