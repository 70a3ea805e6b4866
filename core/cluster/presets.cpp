// The clusters that can be named instead of written down.
#include <array>

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/base/suggest.hpp"
#include "core/cluster/cluster.hpp"

namespace pipewright {

namespace {

constexpr int kDevicesOfNode = 8;

/// Ranks that share this machine. Round numbers, the same everywhere: `profile` measures the real
/// ones.
Cluster local_cpu(int devices) {
  Cluster cluster;
  cluster.name = "local-cpu";
  cluster.devices_per_node = devices > 0 ? devices : 4;
  cluster.device = {"cpu", "cpu", Bytes(16 * kGibibyte), 1e11};
  cluster.inside = {Nanoseconds(2'000), 10e9, Sharing::None};
  return cluster;
}

/// NVIDIA's and AMD's systems of eight GPUs, by their data sheets and user guides. `flops`: dense
/// products of 16-bit numbers. `inside`: links between GPUs, one direction, of a GPU. `across`:
/// what a GPU has of the node's InfiniBand ports.
struct Node {
  std::string_view name, model;
  std::int64_t gibibytes;
  double flops, inside, across;
};
constexpr std::array<Node, 9> kNodes{{
    // Six NVLink 2.0 bricks of 25 GB/s a GPU; four ports of 100 Gb/s.
    {"dgx-v100", "NVIDIA V100-SXM2-32GB", 32, 125e12, 150e9, 6.25e9},
    // Twelve NVLink 3.0 links of 25 GB/s; eight ports of 200 Gb/s.
    {"dgx-a100-40gb", "NVIDIA A100-SXM4-40GB", 40, 312e12, 300e9, 25e9},
    {"dgx-a100", "NVIDIA A100-SXM4-80GB", 80, 312e12, 300e9, 25e9},
    // Eighteen NVLink 4.0 links of 25 GB/s; eight ports of 400 Gb/s.
    {"dgx-h100", "NVIDIA H100-SXM5-80GB", 80, 989e12, 450e9, 50e9},
    {"dgx-h200", "NVIDIA H200-SXM5-141GB", 141, 989e12, 450e9, 50e9},
    // Eighteen NVLink 5 links of 50 GB/s; eight ports of 400 Gb/s.
    {"dgx-b200", "NVIDIA B200-SXM6-180GB", 180, 2250e12, 900e9, 50e9},
    // Seven links of 64 GB/s (MI355X: 76.8), one to each other GPU; eight ports of 400 Gb/s.
    {"mi300x", "AMD Instinct MI300X", 192, 1307e12, 448e9, 50e9},
    {"mi325x", "AMD Instinct MI325X", 256, 1307e12, 448e9, 50e9},
    {"mi355x", "AMD Instinct MI355X", 288, 2517e12, 537.6e9, 50e9},
}};

Cluster node_cluster(const Node& system, int devices) {
  if (devices % kDevicesOfNode != 0) {
    const int more = (devices / kDevicesOfNode + 1) * kDevicesOfNode;
    throw InputError(std::string(system.name) + " comes in whole nodes of 8 devices, so " +
                     std::to_string(devices) + " cannot be had; ask for " + std::to_string(more) +
                     ", or describe the cluster in a file");
  }
  Cluster cluster;
  cluster.name = system.name;
  cluster.nodes = devices > 0 ? devices / kDevicesOfNode : 1;
  cluster.devices_per_node = kDevicesOfNode;
  cluster.device = {"cuda", std::string(system.model), Bytes(system.gibibytes * kGibibyte),
                    system.flops};
  cluster.inside = {Nanoseconds(5'000), system.inside, Sharing::Fair};
  cluster.across = {Nanoseconds(10'000), system.across, Sharing::Fair};
  return cluster;
}

}  // namespace

std::vector<std::string_view> cluster_preset_names() {
  std::vector<std::string_view> names{"local-cpu"};
  for (const Node& system : kNodes) names.push_back(system.name);
  return names;
}

Cluster cluster_preset(std::string_view name, int devices) {
  if (devices < 0 || devices > kMostDevices) {
    throw InputError("expected 1 to " + std::to_string(kMostDevices) + " devices, found " +
                     std::to_string(devices));
  }
  if (name == "local-cpu") {
    return local_cpu(devices);
  }
  for (const Node& system : kNodes) {
    if (system.name == name) return node_cluster(system, devices);
  }
  std::string list;
  for (const std::string_view known : cluster_preset_names()) {
    list += (list.empty() ? "" : ", ") + std::string(known);
  }
  throw InputError("unknown cluster preset \"" + std::string(name) + "\"" +
                   did_you_mean(name, cluster_preset_names()) + "; the presets are " + list);
}

}  // namespace pipewright
