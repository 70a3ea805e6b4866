#include "core/cluster/network_paths.hpp"

#include <algorithm>
#include <unordered_map>

#include "core/base/error.hpp"

namespace pipewright {
namespace {

constexpr int kUnreached = -1;

/// Spreads flows over equal ways: a number in [0, ways) by the ends of the flow and the place where
/// it is chosen. (The finalizer of splitmix64.)
std::int64_t choice(int source, int destination, int place, std::int64_t ways) {
  if (ways == 1) return 0;
  std::uint64_t x =
      (static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(destination)) +
      0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(place + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return static_cast<std::int64_t>(x % static_cast<std::uint64_t>(ways));
}

}  // namespace

NetworkPaths::NetworkPaths(const Cluster& cluster) : NetworkPaths(cluster, *cluster.network) {}

NetworkPaths::NetworkPaths(const Cluster& cluster, const Network& network)
    : cluster_(cluster), network_(network) {
  if (!network_.levels.empty()) return;
  const auto ports =
      static_cast<std::size_t>(cluster.nodes) * static_cast<std::size_t>(ports_of_node(cluster));
  cables_at_.resize(ports);
  std::unordered_map<std::string, std::uint32_t> switches;
  const auto vertex = [&](const std::string& name) {
    const std::int64_t port = port_named(name, cluster);
    if (port >= 0) return static_cast<std::uint32_t>(port);
    const auto [entry, is_new] =
        switches.try_emplace(name, static_cast<std::uint32_t>(cables_at_.size()));
    if (is_new) cables_at_.emplace_back();
    return entry->second;
  };
  for (std::uint32_t c = 0; c < network_.cables.size(); ++c) {
    const std::uint32_t from = vertex(network_.cables[c].from), to = vertex(network_.cables[c].to);
    cables_at_[from].push_back({to, c, true});
    cables_at_[to].push_back({from, c, false});
  }
}

int NetworkPaths::port_number(int device) const {
  const int each = cluster_.devices_per_node;
  return device / each * ports_of_node(cluster_) + port_of(cluster_, device % each);
}

NetworkPath NetworkPaths::between(int source, int destination) {
  const int each = cluster_.devices_per_node;
  PIPEWRIGHT_ASSERT(source / each != destination / each, "a way through the network inside a node");
  NetworkPath path{source, destination, {}};
  if (network_.levels.empty()) {
    follow_cables(path, source, destination);
    return path;
  }
  const int from = port_of(cluster_, source % each), to = port_of(cluster_, destination % each);
  if (network_.rails_meet_in_nodes && from % network_.rails != to % network_.rails)
    path.leaves_by = source - source % each + first_on_port(cluster_, to);
  climb(path, source, destination);
  return path;
}

/// Up to the first level where both ends are in one group, and down the same switches. The uplinks
/// taken so far number the switch among those of its group.
void NetworkPaths::climb(NetworkPath& path, int source, int destination) const {
  const int each = cluster_.devices_per_node;
  const int rail_up = port_of(cluster_, path.leaves_by % each) % network_.rails;
  const int rail_down = port_of(cluster_, path.arrives_by % each) % network_.rails;
  std::int64_t from = source / each, to = destination / each, number = 0, width = 1;
  std::vector<NetworkHop> down;
  for (int k = 0; k < static_cast<int>(network_.levels.size()); ++k) {
    const NetworkLevel& level = network_.levels[static_cast<std::size_t>(k)];
    from /= level.joins;
    to /= level.joins;
    const bool by_rail = k == 0 || network_.rails_meet_in_nodes;
    if (from == to && (!by_rail || rail_up == rail_down)) break;
    width *= level.uplinks;
    if (!network_.by_packet)
      number = number * level.uplinks + choice(source, destination, k, level.uplinks);
    const double rate =
        level.bytes_per_second * (network_.by_packet ? static_cast<double>(width) : 1.0);
    path.hops.push_back({{k, true, by_rail ? rail_up : 0, from, number}, rate, level.latency});
    down.push_back({{k, false, by_rail ? rail_down : 0, to, number}, rate, level.latency});
  }
  path.hops.insert(path.hops.end(), down.rbegin(), down.rend());
}

/// Cables to a port from everywhere, the other ports aside, which pass nothing on.
const std::vector<int>& NetworkPaths::distances_to(std::uint32_t port) {
  std::vector<int>& distance = distances_[port];
  if (!distance.empty()) return distance;
  const auto ports = static_cast<std::uint32_t>(cluster_.nodes * ports_of_node(cluster_));
  distance.assign(cables_at_.size(), kUnreached);
  distance[port] = 0;
  std::vector<std::uint32_t> queue = {port};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::uint32_t at = queue[next];
    if (at < ports && at != port) continue;
    for (const End& end : cables_at_[at]) {
      if (distance[end.vertex] != kUnreached) continue;
      distance[end.vertex] = distance[at] + 1;
      queue.push_back(end.vertex);
    }
  }
  return distance;
}

void NetworkPaths::follow_cables(NetworkPath& path, int source, int destination) {
  auto at = static_cast<std::uint32_t>(port_number(source));
  const auto goal = static_cast<std::uint32_t>(port_number(destination));
  const std::vector<int>& distance = distances_to(goal);
  for (int step = 0; at != goal; ++step) {
    const auto leads_on = [&](const End& end) {
      return distance[end.vertex] == distance[at] - 1 &&
             (end.vertex == goal ||
              end.vertex >= static_cast<std::uint32_t>(cluster_.nodes * ports_of_node(cluster_)));
    };
    std::int64_t ways = 0;
    for (const End& end : cables_at_[at])
      if (leads_on(end)) ways += network_.cables[end.cable].count;
    std::int64_t chosen = choice(source, destination, step, ways);
    const auto end = std::ranges::find_if(cables_at_[at], [&](const End& candidate) {
      if (!leads_on(candidate)) return false;
      const int count = network_.cables[candidate.cable].count;
      if (chosen < count) return true;
      chosen -= count;
      return false;
    });
    PIPEWRIGHT_ASSERT(end != cables_at_[at].end(), "a port that cables do not lead to");
    const Cable& cable = network_.cables[end->cable];
    path.hops.push_back(
        {{0, end->forward, 0, end->cable, chosen}, cable.bytes_per_second, cable.latency});
    at = end->vertex;
  }
}

std::string NetworkPaths::name_of(const NetworkHop::Place& place) const {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (network_.levels.empty()) {
    const Cable& cable = network_.cables[static_cast<std::size_t>(place.group)];
    const std::string copy = cable.count > 1 ? ", cable " + number(place.number) : "";
    return place.up ? cable.from + " to " + cable.to + copy : cable.to + " to " + cable.from + copy;
  }
  const bool by_rail = network_.rails > 1 && (place.level == 0 || network_.rails_meet_in_nodes);
  return "level " + number(place.level + 1) + " group " + number(place.group) +
         (by_rail ? " rail " + number(place.rail) : "") +
         (network_.by_packet ? ", uplinks" : ", uplink " + number(place.number)) +
         (place.up ? " up" : " down");
}

std::string unreached_port(const Network& network, const Cluster& cluster) {
  NetworkPaths paths(cluster, network);
  const std::vector<int>& distance = paths.distances_to(0);
  const int ports = ports_of_node(cluster);
  for (int port = 0; port < cluster.nodes * ports; ++port) {
    if (distance[static_cast<std::size_t>(port)] == kUnreached)
      return "node " + std::to_string(port / ports) + " port " + std::to_string(port % ports);
  }
  return "";
}

}  // namespace pipewright
