// The machines: nodes of equal devices, and the links between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs.hpp"
#include "core/json.hpp"

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

struct Cluster {
  std::string name;
  int nodes = 1, devices_per_node = 1;
  DeviceSpec device;
  PortSpec inside;  // between devices of a node
  PortSpec across;  // between nodes

  int devices() const { return nodes * devices_per_node; }
};

/// "none", "serial" or "fair", as cluster and plan files write it.
std::string_view to_string(Sharing sharing);

/// An object, or {"preset": "dgx-a100", "devices": 16}.
Cluster read_cluster(const JsonCursor& document);
Json to_json(const Cluster& cluster);
/// One of cluster_preset_names(); `devices` > 0 asks for that many
/// (local-cpu: ranks that share this machine; dgx: whole nodes of 8).
Cluster cluster_preset(std::string_view name, int devices = 0);
std::vector<std::string_view> cluster_preset_names();
/// What a plan was made for, as one line of text: kind, model, memory, nodes,
/// devices.
std::string fingerprint(const Cluster& cluster);

/// Fills links and route_of_edge: rank r sits on device device_of_rank[r].
void set_routes(CostTable& costs, const Cluster& cluster, const std::vector<int>& device_of_rank);

}  // namespace pipewright
