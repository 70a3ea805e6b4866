// The way of a transfer through a cluster's network: which ports and links it takes. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/cluster/network.hpp"

namespace pipewright {

/// One direction of an uplink, or of a cable.
struct NetworkHop {
  struct Place {
    int level = 0;  // of a fat tree: that of the lower switch, from 0; of cables: 0
    bool up = true;
    int rail = 0;             // 0 where the level's switches are of all rails
    std::int64_t group = 0;   // of the lower switch; of cables: the cable
    std::int64_t number = 0;  // of the uplink among all of the group; of cables: which copy
    auto operator<=>(const Place&) const = default;
  };
  Place place;
  double bytes_per_second = 0;
  Nanoseconds latency;
};

struct NetworkPath {
  /// Devices of the two nodes by whose ports it leaves and arrives; another one than the sender
  /// where it changes the rail inside the node first.
  int leaves_by = 0, arrives_by = 0;
  std::vector<NetworkHop> hops;
};

/// Between devices of different nodes of a cluster that has a network and must outlive this.
/// Deterministic: of ways that are equally long, the devices at both ends choose one.
class NetworkPaths {
 public:
  explicit NetworkPaths(const Cluster& cluster);
  NetworkPath between(int source, int destination);
  std::string name_of(const NetworkHop::Place& place) const;

 private:
  struct End {  // of a cable, seen from its other end
    std::uint32_t vertex, cable;
    bool forward;
  };
  void climb(NetworkPath& path, int source, int destination) const;
  void follow_cables(NetworkPath& path, int source, int destination);
  const std::vector<int>& distances_to(std::uint32_t port);
  int port_number(int device) const;

  const Cluster& cluster_;
  const Network& network_;
  std::vector<std::vector<End>> cables_at_;  // by vertex: the ports, then the switches
  std::map<std::uint32_t, std::vector<int>> distances_;

  friend std::string unreached_port(const Network& network, const Cluster& cluster);
  NetworkPaths(const Cluster& cluster, const Network& network);
};

/// A port to which no cables lead from the first one; "": they lead to all.
std::string unreached_port(const Network& network, const Cluster& cluster);

}  // namespace pipewright
