#include "core/cluster/paddle.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"

namespace pipewright {
namespace {

constexpr double kMostPaddleRate = 1e9;  // GB/s, GB or gigaflops

// Paddle's own defaults (cluster.py; cost/base_cost.py): GB/s inside a machine and across, and
// microseconds of a ring's step.
constexpr double kInside = 235, kAcross = 24;
constexpr double kNvlinkMicroseconds = 3.4, kHostBridgeMicroseconds = 5.7;
constexpr double kNetworkMicroseconds = 9.6, kSwitchMicroseconds = 10;

struct PaddleDevice {
  int machine = 0;
  bool gpu = false;
};

struct PaddleReader {
  const JsonCursor& document;
  std::map<std::int64_t, PaddleDevice> devices;  // by global id
  std::vector<NodeKind> machines;
  int gpus_per_machine = 0;
  std::set<std::string> assumed;
  std::optional<double> across_gb_per_s;
  double inside_us = kNvlinkMicroseconds, across_us = kNetworkMicroseconds + kSwitchMicroseconds;
};

/// Paddle's own files write some numbers as texts: "memory": "502".
double number_of(const JsonCursor& value, double least, double most) {
  if (!value.value().is_string()) return value.number(least, most);
  const std::string text = value.string();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool fits = error == std::errc() && end == text.data() + text.size();
  if (!fits || !(number >= least && number <= most)) value.fail("a number, or one as a text");
  return number;
}

double gigaflops(const JsonCursor& device, PaddleReader& reader) {
  const auto rate_at = [&](std::string_view key) {
    const auto value = device.find(key);
    return value ? number_of(*value, 0, kMostPaddleRate) : 0;
  };
  const double half = rate_at("hp_gflops"), single = rate_at("sp_gflops");
  rate_at("dp_gflops");
  if (half > 0) return half;
  // Dense products of 16-bit numbers; Paddle's own default for the A100, 624000, counts sparse
  // ones.
  const std::string model = device.at("model").string();
  for (const auto& [name, rate] : {std::pair{"V100", 125000.0}, {"A100", 312000.0}}) {
    if (model.find(name) == std::string::npos) continue;
    reader.assumed.insert(std::string("there is no hp_gflops: a ") + name + " computes at " +
                          std::to_string(static_cast<int>(rate)) + " gigaflops");
    return rate;
  }
  if (single <= 0) device.fail("a member \"hp_gflops\", the rate for 16-bit numbers");
  reader.assumed.insert("there is no hp_gflops: devices compute at sp_gflops");
  return single;
}

DeviceSpec read_gpu(const JsonCursor& device, PaddleReader& reader) {
  DeviceSpec spec;
  spec.kind = "cuda";
  spec.model = read_name(device.at("model"));
  const double gibibytes = number_of(device.at("memory"), 1e-3, 1e6);
  spec.memory = Bytes(static_cast<std::int64_t>(gibibytes * static_cast<double>(kGibibyte)));
  spec.flops = gigaflops(device, reader) * 1e9;
  reader.assumed.insert("memory is taken as binary gigabytes");
  return spec;
}

void read_device(const JsonCursor& device, int machine, NodeKind& kind, int& gpus,
                 PaddleReader& reader) {
  device.only({"global_id", "local_id", "type", "model", "memory", "sp_gflops", "dp_gflops",
               "hp_gflops", "arch", "vendor", "width", "ip"});
  const std::string type = read_choice<std::string>(
      device.at("type"),
      {{"GPU", "GPU"}, {"CPU", "CPU"}, {"NIC", "NIC"}, {"XPU", "XPU"}, {"DCU", "DCU"}});
  if (type == "XPU" || type == "DCU") device.at("type").fail("GPU, CPU or NIC");
  const JsonCursor id = device.at("global_id");
  if (!reader.devices.emplace(id.integer(0, kMostBytes), PaddleDevice{machine, type == "GPU"})
           .second) {
    id.fail("an id that no device before it has");
  }
  if (type != "GPU") return;
  const DeviceSpec spec = read_gpu(device, reader);
  if (gpus++ == 0) {
    kind.device = spec;
  } else if (spec.model != kind.device.model || spec.memory != kind.device.memory ||
             spec.flops != kind.device.flops) {
    device.fail("a GPU like the others of its machine");
  }
}

void read_machine_devices(const JsonCursor& machine, PaddleReader& reader) {
  machine.only({"hostname", "addr", "port", "devices", "links"});
  NodeKind kind;
  int gpus = 0;
  const JsonCursor devices = machine.at("devices");
  for (const JsonCursor& device : devices.elements()) {
    read_device(device, static_cast<int>(reader.machines.size()), kind, gpus, reader);
  }
  if (gpus == 0) devices.fail("at least one GPU");
  if (reader.machines.empty()) {
    reader.gpus_per_machine = gpus;
  } else if (gpus != reader.gpus_per_machine) {
    devices.fail(std::to_string(reader.gpus_per_machine) +
                 " GPUs, as many as the machines before it have");
  }
  reader.machines.push_back(std::move(kind));
}

const PaddleDevice& end_of(const JsonCursor& link, std::string_view key,
                           const PaddleReader& reader) {
  const JsonCursor id = link.at(key);
  const auto found = reader.devices.find(id.integer(0, kMostBytes));
  if (found == reader.devices.end()) id.fail("the global_id of a device");
  return found->second;
}

void keep_least(std::optional<double>& least, double value) {
  if (!least || value < *least) least = value;
}

/// The least bandwidth between GPUs of the machine; that to another machine goes to the reader. A
/// bandwidth of 0 is one that was not measured.
std::optional<double> read_links(const JsonCursor& machine, PaddleReader& reader) {
  std::optional<double> inside;
  const auto links = machine.find("links");
  if (!links) return inside;
  for (const JsonCursor& link : links->elements()) {
    link.only({"source_global_id", "target_global_id", "type", "bandwidth", "latency", "hop"});
    const PaddleDevice& source = end_of(link, "source_global_id", reader);
    const PaddleDevice& target = end_of(link, "target_global_id", reader);
    if (const auto type = link.find("type")) type->string();
    if (const auto latency = link.find("latency")) number_of(*latency, 0, kMostPaddleRate);
    if (const auto hop = link.find("hop")) hop->integer(0, 1000);
    const double bandwidth = number_of(link.at("bandwidth"), 0, kMostPaddleRate);
    if (bandwidth <= 0) continue;
    if (source.machine != target.machine) {
      keep_least(reader.across_gb_per_s, bandwidth);
    } else if (source.gpu && target.gpu) {
      keep_least(inside, bandwidth);
    }
  }
  return inside;
}

/// Microseconds, or the name of a kind of link.
double read_alpha(const JsonCursor& value) {
  if (value.value().is_number()) return value.number(0, 1e9);
  return read_choice<double>(value, {{"NVL", kNvlinkMicroseconds},
                                     {"PHB", kHostBridgeMicroseconds},
                                     {"NET", kNetworkMicroseconds}});
}

/// The step of a ring inside, and across with the one switch that Paddle counts by default.
void read_latencies(PaddleReader& reader) {
  const auto alpha = reader.document.find("alpha_latency");
  if (!alpha || alpha->value().is_null()) {
    reader.assumed.insert(
        "there is no alpha_latency: 3.4 us inside a machine, 19.6 us across, Paddle's own "
        "defaults");
    return;
  }
  alpha->only({"base", "inter", "intra", "switch"});
  double across = kNetworkMicroseconds, crossing = kSwitchMicroseconds;
  for (const std::string_view part : {"base", "inter", "intra"}) {
    const auto member = alpha->find(part);
    if (!member) continue;
    member->only({"ring", "tree"});
    if (const auto tree = member->find("tree")) read_alpha(*tree);
    const auto ring = member->find("ring");
    if (!ring) continue;
    const double microseconds = read_alpha(*ring);
    if (part == "intra") reader.inside_us = microseconds;
    if (part == "inter") across = microseconds;
  }
  if (const auto value = alpha->find("switch")) crossing = read_alpha(*value);
  reader.across_us = across + crossing;
}

PortSpec port_of(double microseconds, double gigabytes_per_second) {
  return {Nanoseconds(static_cast<std::int64_t>(microseconds * 1000 + 0.5)),
          gigabytes_per_second * 1e9, Sharing::Fair};
}

void set_ports(const std::vector<std::optional<double>>& inside, PaddleReader& reader) {
  if (!reader.across_gb_per_s && reader.machines.size() > 1) {
    reader.assumed.insert("no link leads to another machine: 24 GB/s, Paddle's own default");
  }
  for (std::size_t machine = 0; machine < reader.machines.size(); ++machine) {
    NodeKind& kind = reader.machines[machine];
    if (!inside[machine] && reader.gpus_per_machine > 1) {
      reader.assumed.insert("GPUs of a machine have no links: 235 GB/s, Paddle's own default");
    }
    kind.inside = port_of(reader.inside_us, inside[machine].value_or(kInside));
    if (reader.machines.size() > 1) {
      kind.across = port_of(reader.across_us, reader.across_gb_per_s.value_or(kAcross));
    }
  }
  reader.assumed.insert("each GPU has a port of its own to the network; transfers share it fairly");
}

bool alike_in_paddle(const NodeKind& a, const NodeKind& b) {
  return a.device.model == b.device.model && a.device.memory == b.device.memory &&
         a.device.flops == b.device.flops && a.inside.bytes_per_second == b.inside.bytes_per_second;
}

}  // namespace

bool is_paddle_cluster(const JsonCursor& document) {
  return document.value().is_object() && document.find("machines") && !document.find("schema");
}

Cluster read_paddle_cluster(const JsonCursor& document) {
  document.only({"alpha_latency", "machines"});
  PaddleReader reader{document, {}, {}, 0, {}, {}};
  const auto machines = document.at("machines").elements();
  if (machines.empty()) document.at("machines").fail("at least one machine");
  for (const JsonCursor& machine : machines) read_machine_devices(machine, reader);
  if (machines.size() * static_cast<std::size_t>(reader.gpus_per_machine) > kMostDevices) {
    document.at("machines").fail("at most " + std::to_string(kMostDevices) + " GPUs in all");
  }
  std::vector<std::optional<double>> inside;
  for (const JsonCursor& machine : machines) inside.push_back(read_links(machine, reader));
  read_latencies(reader);
  set_ports(inside, reader);
  Cluster cluster;
  cluster.name = "paddle-cluster";
  cluster.devices_per_node = reader.gpus_per_machine;
  for (const NodeKind& machine : reader.machines) {
    if (!cluster.kinds.empty() && alike_in_paddle(cluster.kinds.back(), machine)) {
      ++cluster.kinds.back().nodes;
    } else {
      cluster.kinds.push_back(machine);
    }
  }
  summarise_kinds(cluster);
  if (cluster.kinds.size() == 1) cluster.kinds.clear();
  cluster.assumed.assign(reader.assumed.begin(), reader.assumed.end());
  return cluster;
}

}  // namespace pipewright
