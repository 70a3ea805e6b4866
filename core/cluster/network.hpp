// The network between nodes: the section "network" of a cluster's file (docs/networks.md,
// decision 72). A fat tree of any number of levels, or cables by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright {

struct Cluster;

/// Switches of one level, from the leaves on.
struct NetworkLevel {
  int joins = 1;    // nodes, or groups of the level below, that are joined here
  int uplinks = 0;  // of each switch, each to a switch of its own above; 0 on the last level
  double bytes_per_second = 0;  // of an uplink, in each direction
  Nanoseconds latency;          // of passing it
};

/// Ends are ports of nodes ("node 3 port 0") or switches (any other name); both directions.
struct Cable {
  std::string from, to;
  int count = 1;
  double bytes_per_second = 0;  // of each
  Nanoseconds latency;
};

struct Network {
  std::vector<NetworkLevel> levels;  // empty: cables
  int rails = 1;                     // port p of a node is on rail p mod rails
  /// Rails have no switch in common: what changes the rail does so inside the sending node. Else
  /// they meet from the second level on.
  bool rails_meet_in_nodes = false;
  /// Every transfer uses all parallel uplinks, as with adaptive routing by packets; else one,
  /// chosen by its ends.
  bool by_packet = false;
  std::vector<Cable> cables;
};

/// Ports to other nodes that a node has.
int ports_of_node(const Cluster& cluster);
/// That a device of a node uses; the first device that uses a port.
int port_of(const Cluster& cluster, int local_device);
int first_on_port(const Cluster& cluster, int port);

/// The network of a cluster whose nodes and ports are known: an object, or the path of a file that
/// holds one. Throws InputError with file and pointer.
Network read_network(const JsonCursor& value, const Cluster& cluster);
Json to_json(const Network& network);

/// "node 3 port 0" as 3 · ports + 0; -1 for the name of a switch, and for a port that the cluster
/// does not have.
std::int64_t port_named(std::string_view name, const Cluster& cluster);

/// The least part of its ports' rate that all nodes together can send upwards over some level of a
/// fat tree: 1 without oversubscription, of cables, and where there is no network.
double least_share_upwards(const Cluster& cluster);

}  // namespace pipewright
