#include "planner/estimate/coefficients.hpp"

#include <algorithm>
#include <array>

#include "core/base/error.hpp"

namespace pipewright::planner {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

/// Hopper. Attention: FlashAttention-3 and cuDNN with causal masks and heads of 128 reach 600 to
/// 650 TFLOP/s forward and 480 to 560 backward, and 1.5 to 2 times FlashAttention-2
/// (arXiv:2407.08608 §4); against 623 of a plain product.
constexpr DeviceRates hopper(std::string_view name, double memory, double gibibytes) {
  DeviceRates device{name, 989e12, memory, gibibytes * kGiB, 132, 256, 128, true, 0.63, 0.60};
  device.faster_in_8_bits = 1.78;
  device.watts = 700;
  device.flops_of_cores = 67e12;
  device.host_bytes_per_second = 64e9;
  device.time_deviation = 0.03;
  device.flash_forward = 1;
  device.flash_backward = 0.8;
  device.older_flash = 0.58;
  return device;
}

/// Blackwell: of products each reaches what its power allows, against B200's. Attention as cuDNN
/// has it on B200: 0.42 to 0.6 of the peak forward and 0.36 to 0.48 backward, where plain products
/// reach 0.49 (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json).
constexpr DeviceRates like_b200(std::string_view name, double peak, double gibibytes, double watts,
                                double host = 64e9) {
  DeviceRates device{name, peak, 8000e9, gibibytes * kGiB, 148, 256, 256, true};
  device.watts = watts;
  device.flops_of_cores = 80e12;
  device.host_bytes_per_second = host;
  device.time_deviation = 0.06;
  device.faster_in_8_bits = 2;
  device.scales_blocks = true;
  device.faster_in_4_bits = name.ends_with("B300") ? 6 : 4;
  device.matmul_efficiency = 0.48 * device.joules_of_peak() / (1000 / 2250e12);
  device.memory_efficiency = 0.50;
  device.flash_forward = 1;
  device.flash_backward = 0.8;
  return device;
}

/// AMD's CDNA 3, of which no rows of training are known: products as AMD measured them (708 and 843
/// TFLOP/s of bf16 on MI300X and MI325X, 1,273 and 1,519 of FP8; "Measuring Max-Achievable FLOPs,
/// Part 2", rocm.blogs.amd.com), and 4, whose MI355X reaches what its power allows against MI300X.
/// Kernels that stream as on Hopper.
constexpr DeviceRates cdna(std::string_view name, double peak, double memory, double gibibytes,
                           int units, double watts, double products) {
  DeviceRates device{name, peak, memory, gibibytes * kGiB, units, 256, 256, true, products, 0.60};
  device.faster_in_8_bits = 1.8;
  device.watts = watts;
  device.flops_of_cores = 160e12;
  device.host_bytes_per_second = 64e9;
  device.message_share = 1.0 / 7;
  return device;
}
constexpr DeviceRates mi355x() {
  DeviceRates device = cdna("MI355X", 2517e12, 8000e9, 288, 256, 1400, 0);
  device.matmul_efficiency = 0.54 * device.joules_of_peak() / (750 / 1307e12);
  device.faster_in_8_bits = 2;
  device.scales_blocks = true;
  return device;
}

// Peaks, bandwidths, sizes, multiprocessors, watts, rates without tensor cores and ways to the host
// (PCI Express 3 to 5; of a Grace's NVLink-C2C each of two devices has half): NVIDIA's data sheets
// (T4, V100 SXM2, A100 SXM4 80GB, H100 SXM5, H800 SXM, H200 SXM, B200 and B300 in a HGX, GB200 and
// GB300 in NVL72). Efficiencies: docs/cost-model.md. A name within another's stands after it.
constexpr std::array<DeviceRates, 14> kDevices{{
    {"T4", 65e12, 320e9, 16 * kGiB, 40, 128, 128, false, 0.31, 0.85, 0.44, 0, 70, 8.1e12, 16e9,
     0.75, 0.65, 1, 0.03},
    {"V100", 125e12, 900e9, 32 * kGiB, 80,   128,  128,  false, 0.78, 0.75,
     1,      0,      300,   15.7e12,   16e9, 0.75, 0.65, 1,     0.17, 1.0 / 3},
    {"A100-SXM4-40GB", 312e12, 1555e9, 40 * kGiB, 108, 256,  128, false, 0.78, 0.70, 1, 0, 400,
     19.5e12,          32e9,   0.75,   0.65,      1,   0.04, 0.2},
    {"A100", 312e12, 2039e9, 80 * kGiB, 108,  256,  128,  false, 0.78, 0.70,
     1,      0,      400,    19.5e12,   32e9, 0.75, 0.65, 1,     0.04, 0.2},
    hopper("H100", 3350e9, 80),
    hopper("H200", 4800e9, 141),
    hopper("H800", 3350e9, 80),
    like_b200("GB200", 2500e12, 186, 1200, 225e9),
    like_b200("GB300", 2500e12, 288, 1400, 225e9),
    like_b200("B300", 2250e12, 288, 1100),
    like_b200("B200", 2250e12, 180, 1000),
    cdna("MI300X", 1307e12, 5300e9, 192, 304, 750, 0.54),
    cdna("MI325X", 1307e12, 6000e9, 256, 304, 1000, 0.64),
    mi355x(),
}};

/// A device's links inside its node, in one direction: what its data sheet says, and what a large
/// collective reaches of that.
struct InsideRates {
  double nominal = 0, reached = 0;
};

/// A100: nccl-tests (see the header). V100: a ring over six NVLink 2.0 bricks; H100 and B200:
/// nccl-tests figures of the vendors' and SimuMax's systems (configs/system of
/// MooreThreads/SimuMax, Apache-2.0). T4: sixteen lanes of PCI Express 3.0.
InsideRates inside_of(std::string_view device) {
  if (device == "V100") return {150e9, 130e9};
  if (device.find("A100") == 0) return {300e9, 230e9};
  if (device.ends_with("B200") || device.ends_with("B300")) return {900e9, 630e9};
  if (device == "H800") return {200e9, 160e9};  // H100's links, eight of eighteen; as large a share
  if (device == "T4") return {16e9, 12e9};
  // What a node of MI300X has to reach in rccl-tests' all-reduce (AMD Instinct customer acceptance
  // guide); of MI355X the same share.
  if (device == "MI355X") return {537.6e9, 365e9};
  if (device.starts_with("MI3")) return {448e9, 304e9};
  return {450e9, 360e9};
}

}  // namespace

DeviceRates device_rates(std::string_view name) {
  for (const DeviceRates& device : kDevices) {
    if (name.find(device.name) != std::string_view::npos) return device;
  }
  throw InputError(
      "no rates are known for the device \"" + std::string(name) +
      "\"; known are T4, V100, A100, H100, H800, H200, B200, GB200, B300, GB300, MI300X, "
      "MI325X and MI355X");
}

std::vector<std::string_view> device_rate_names() {
  std::vector<std::string_view> names;
  for (const DeviceRates& device : kDevices) names.push_back(device.name);
  return names;
}

double shown_share(std::string_view device) {
  // PyTorch's "total capacity" where it ran out of memory: 14.76 of 16 GiB (T4, whose error
  // correction takes a sixteenth), 15.77 of 16 (V100), 39.59 of 40 (A100), 79.18 of 80 (H100).
  if (device == "T4") return 14.76 / 16;
  if (device == "V100") return 15.77 / 16;
  if (device.starts_with("A100")) return 39.59 / 40;
  if (device.starts_with("H")) return 79.18 / 80;
  return 1;
}

Machine nvlink_machine(std::string_view device, double network_bytes_per_second) {
  const DeviceRates rates = device_rates(device);
  return {8, {{rates, inside_of(rates.name).reached, network_bytes_per_second}}};
}

Machine machine_of(const Cluster& cluster) {
  const double ports = ports_of_node(cluster) * least_share_upwards(cluster);
  const auto node_of = [&](const DeviceSpec& device, const PortSpec& inside,
                           const PortSpec& across) {
    NodeRates node = nvlink_machine(device.model, across.bytes_per_second * ports).nodes.front();
    node.device.memory_bytes = static_cast<double>(device.memory.value);
    if (device.flops > 0) node.device.peak_flops = device.flops;
    if (inside.bytes_per_second > 0) {
      node.inside_bytes_per_second *= inside.bytes_per_second / inside_of(node.device.name).nominal;
    }
    return node;
  };
  Machine machine;
  machine.devices_per_node = cluster.devices_per_node;
  if (cluster.kinds.empty())
    machine.nodes = {node_of(cluster.device, cluster.inside, cluster.across)};
  for (const NodeKind& kind : cluster.kinds) {
    machine.nodes.insert(machine.nodes.end(), static_cast<std::size_t>(kind.nodes),
                         node_of(kind.device, kind.inside, kind.across));
  }
  return machine;
}

double Machine::time_deviation() const {
  double most = 0;
  for (const NodeRates& node : nodes) most = std::max(most, node.device.time_deviation);
  return most;
}

void require_products(const Machine& machine, const FrameworkTraits& framework) {
  for (const NodeRates& node : machine.nodes) {
    if (node.device.product_rate(framework.product_bytes) > 0) continue;
    const ProductFormat* format = product_format(framework.product_bytes);
    PIPEWRIGHT_ASSERT(format != nullptr, "products of a format that nobody reads");
    throw InputError(std::string(node.device.name) + " has no products of " +
                     std::string(format->name) + "; " + std::string(format->devices) + " have");
  }
}

Machine in_order(const Machine& machine, const std::vector<int>& nodes) {
  Machine result = machine;
  if (machine.nodes.size() == 1) return result;
  result.nodes.clear();
  for (const int node : nodes) result.nodes.push_back(machine.node(node));
  return result;
}

}  // namespace pipewright::planner
