// The machines: nodes of equal devices, and the links between them. Nodes may be of several kinds;
// code that does not look at the kinds sees every node as the weakest.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/network.hpp"
#include "core/costs/collective_model.hpp"
#include "core/costs/costs.hpp"

namespace pipewright {

struct DeviceSpec {
  std::string kind;   // "cpu" or "cuda"
  std::string model;  // "NVIDIA A100-SXM4-80GB", "cpu"
  Bytes memory;
  double flops = 0;  // peak of the type the model trains in
};

/// A device's port: it sends through its own out-port and receives through its
/// own in-port.
struct PortSpec {
  Nanoseconds latency;
  double bytes_per_second = 0;
  Sharing sharing = Sharing::None;
};

/// Nodes that stand next to each other and are alike.
struct NodeKind {
  int nodes = 1;
  DeviceSpec device;
  PortSpec inside, across;
};

/// A device, or all devices of a node, on which computations take longer than on the others.
struct SlowPlace {
  bool is_node = false;
  int number = 0;  // of the device or the node, counted through the cluster
  double factor = 1;
};

struct Cluster {
  std::string name;
  int nodes = 1, devices_per_node = 1;
  DeviceSpec device;  // of several kinds: the least memory and the least flops
  PortSpec inside;    // between devices of a node; of several kinds: the slowest
  PortSpec across;    // between nodes; of several kinds: the slowest
  /// Ports to the other nodes that a node's devices share, in order; 0: a port for each device.
  int network_ports = 0;
  std::vector<NodeKind> kinds;  // empty: all nodes are alike
  /// What lies between the ports of the nodes, which then share max-min, as all its links do; not
  /// of clusters of several kinds. Else nothing lies there.
  std::optional<Network> network;
  /// What collectives take, where the file says it; not of clusters of several kinds.
  std::optional<CollectiveModel> collectives;
  /// Not of clusters of several kinds, whose slow nodes are a kind of their own. What looks at
  /// these: the search (planner/configurations/uneven_work.hpp).
  std::vector<SlowPlace> slow;
  std::vector<std::string> assumed;  // what the reader assumed, in sentences; not written

  int devices() const { return nodes * devices_per_node; }
  /// How many times as long computations take on a device; 1 on most.
  double slowness(int device) const;
};

/// The kind of a node, also where all are alike.
NodeKind kind_of_node(const Cluster& cluster, int node);
/// Sets nodes, device, inside and across from the kinds, which must not be empty.
void summarise_kinds(Cluster& cluster);

/// "none", "serial", "fair" or "max-min", as cluster and plan files write it.
std::string_view to_string(Sharing sharing);
Sharing read_sharing(const JsonCursor& value);

/// An object, or {"preset": "dgx-a100", "devices": 16}, or Paddle's (core/cluster/paddle.hpp).
Cluster read_cluster(const JsonCursor& document);
Json to_json(const Cluster& cluster);
/// One of cluster_preset_names(); `devices` > 0 asks for that many
/// (local-cpu: ranks that share this machine; dgx: whole nodes of 8).
Cluster cluster_preset(std::string_view name, int devices = 0);
std::vector<std::string_view> cluster_preset_names();
/// What a plan was made for, as one line of text: kind, model, memory, nodes,
/// devices.
std::string fingerprint(const Cluster& cluster);

/// Latency and rate from one device to another; the links it shares with others are not in it.
RouteCosts way_between(const Cluster& cluster, int source, int destination);

/// Whether pairs of ranks differ in their routes, or share links.
bool has_routes_of_edges(const Cluster& cluster);
/// Fills links and route_of_edge: rank r sits on device device_of_rank[r]. Also the prices of
/// collectives, where the cluster has some (core/cluster/collectives.hpp).
void set_routes(CostTable& costs, const Cluster& cluster, const std::vector<int>& device_of_rank);

}  // namespace pipewright
