// The clusters that can be named instead of written down.
#include "core/cluster.hpp"
#include "core/error.hpp"
#include "core/suggest.hpp"

namespace pipewright {

namespace {

constexpr std::int64_t kGibibyte = std::int64_t{1} << 30;
constexpr int kDevicesOfDgx = 8;

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

/// `flops`: dense bf16. `inside`: NVLink, one direction. `across`: one InfiniBand port for each
/// GPU.
Cluster dgx(std::string_view name, std::string model, double flops, double inside, double across,
            int devices) {
  if (devices % kDevicesOfDgx != 0) {
    const int more = (devices / kDevicesOfDgx + 1) * kDevicesOfDgx;
    throw InputError(std::string(name) + " comes in whole nodes of 8 devices, so " +
                     std::to_string(devices) + " cannot be had; ask for " + std::to_string(more) +
                     ", or describe the cluster in a file");
  }
  Cluster cluster;
  cluster.name = name;
  cluster.nodes = devices > 0 ? devices / kDevicesOfDgx : 1;
  cluster.devices_per_node = kDevicesOfDgx;
  cluster.device = {"cuda", std::move(model), Bytes(80 * kGibibyte), flops};
  cluster.inside = {Nanoseconds(5'000), inside, Sharing::Fair};
  cluster.across = {Nanoseconds(10'000), across, Sharing::Fair};
  return cluster;
}

}  // namespace

std::vector<std::string_view> cluster_preset_names() {
  return {"local-cpu", "dgx-a100", "dgx-h100"};
}

Cluster cluster_preset(std::string_view name, int devices) {
  constexpr int kMostDevices = 65536;
  if (devices < 0 || devices > kMostDevices) {
    throw InputError("expected 1 to 65536 devices, found " + std::to_string(devices));
  }
  if (name == "local-cpu") {
    return local_cpu(devices);
  }
  if (name == "dgx-a100") {
    return dgx(name, "NVIDIA A100-SXM4-80GB", 312e12, 300e9, 25e9, devices);
  }
  if (name == "dgx-h100") {
    return dgx(name, "NVIDIA H100-SXM5-80GB", 989e12, 450e9, 50e9, devices);
  }
  throw InputError("unknown cluster preset \"" + std::string(name) + "\"" +
                   did_you_mean(name, cluster_preset_names()) +
                   "; the presets are local-cpu, dgx-a100 and dgx-h100");
}

}  // namespace pipewright
