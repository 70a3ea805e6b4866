// cluster.json: reading and writing.
#include "core/cluster/cluster.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/collectives.hpp"
#include "core/cluster/paddle.hpp"

namespace pipewright {

namespace {

constexpr double kMostRate = 1e18;  // bytes or operations in a second
constexpr double kMostSlowness = 1000;

PortSpec read_port(const JsonCursor& value) {
  value.only({"latency_ns", "bytes_per_second", "sharing"});
  PortSpec port;
  port.latency = read_duration(value.at("latency_ns"));
  port.bytes_per_second = value.at("bytes_per_second").number(1, kMostRate);
  if (const auto sharing = value.find("sharing")) port.sharing = read_sharing(*sharing);
  return port;
}

DeviceSpec read_device(const JsonCursor& value) {
  value.only({"kind", "model", "memory_bytes", "peak_flops"});
  DeviceSpec device;
  device.kind = read_choice<std::string>(value.at("kind"), {{"cpu", "cpu"}, {"cuda", "cuda"}});
  device.model = read_name(value.at("model"));
  device.memory = Bytes(value.at("memory_bytes").integer(1, kMostBytes));
  device.flops = value.at("peak_flops").number(1, 1e21);
  return device;
}

Json port_json(const PortSpec& port) {
  return {{"latency_ns", port.latency.value},
          {"bytes_per_second", port.bytes_per_second},
          {"sharing", to_string(port.sharing)}};
}

Cluster read_preset(const JsonCursor& document, const JsonCursor& preset) {
  document.only({"schema", "name", "preset", "devices", "collectives", "network", "slow"});
  int devices = 0;
  const std::optional<JsonCursor> count = document.find("devices");
  if (count) {
    devices = read_count(*count, 1, kMostDevices);
  }
  const std::string name = preset.string();
  parsed_at(preset, [&] { return cluster_preset(name); });  // blames the name
  return parsed_at(count ? *count : preset, [&] { return cluster_preset(name, devices); });
}

/// `across` is needed where there is another node to go to.
PortSpec read_across(const JsonCursor& value, int nodes) {
  if (const auto across = value.find("across")) return read_port(*across);
  if (nodes > 1) {
    throw InputError(value.file(), value.pointer(),
                     "expected a member \"across\", because there is more than one node; add it");
  }
  return {};
}

void require_few_devices(const JsonCursor& per_node, const Cluster& cluster) {
  if (static_cast<std::int64_t>(cluster.nodes) * cluster.devices_per_node > kMostDevices) {
    per_node.fail("at most " + std::to_string(kMostDevices) + " devices in all");
  }
}

/// Links that share max-min are shared in no other way: a message has one rate on all its links.
/// `port` has been read from the member of that name; those beside a network are always shared.
void require_one_sharing(const JsonCursor& parent, const char* key, const PortSpec& port,
                         bool has_network = false) {
  const auto value = parent.find(key);
  const auto sharing = value ? value->find("sharing") : std::nullopt;
  if (!sharing || port.sharing == Sharing::MaxMin) return;
  if (has_network || port.sharing != Sharing::None) {
    sharing->fail("\"max-min\", as the cluster's other links are shared");
  }
}

bool shares_max_min(const PortSpec& inside, const PortSpec& across) {
  return inside.sharing == Sharing::MaxMin || across.sharing == Sharing::MaxMin;
}

/// In full, or {"nodes": 2, "preset": "dgx-h100"}.
NodeKind read_kind(const JsonCursor& value, int all_nodes, int devices_per_node) {
  NodeKind kind;
  kind.nodes = read_count(value.at("nodes"), 1, kMostDevices);
  const auto preset = value.find("preset");
  if (!preset) {
    value.only({"nodes", "device", "inside", "across", "preset"});
    kind.device = read_device(value.at("device"));
    kind.inside = read_port(value.at("inside"));
    kind.across = read_across(value, all_nodes);
    return kind;
  }
  value.only({"nodes", "preset"});
  const std::string name = preset->string();
  const Cluster node = parsed_at(*preset, [&] { return cluster_preset(name); });
  if (node.devices_per_node != devices_per_node) {
    preset->fail("a preset whose nodes have " + std::to_string(devices_per_node) +
                 " devices, as devices_per_node says");
  }
  kind.device = node.device;
  kind.inside = node.inside;
  kind.across = node.across;
  return kind;
}

void read_kinds(const JsonCursor& list, Cluster& cluster) {
  const std::vector<JsonCursor> values = list.elements();
  std::int64_t nodes = 0;
  for (const JsonCursor& value : values) nodes += read_count(value.at("nodes"), 1, kMostDevices);
  if (nodes > kMostDevices) list.fail("at most " + std::to_string(kMostDevices) + " nodes in all");
  for (const JsonCursor& value : values) {
    NodeKind kind = read_kind(value, static_cast<int>(nodes), cluster.devices_per_node);
    if (!cluster.kinds.empty() && kind.device.kind != cluster.kinds.front().device.kind) {
      value.fail("devices of the kind before them, \"" + cluster.kinds.front().device.kind + "\"");
    }
    cluster.kinds.push_back(std::move(kind));
  }
  if (cluster.kinds.empty()) list.fail("at least one kind of node");
  const auto is_max_min = [](const NodeKind& kind) {
    return shares_max_min(kind.inside, kind.across);
  };
  if (std::ranges::any_of(cluster.kinds, is_max_min)) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (values[k].find("preset"))
        values[k].fail("ports in full, which share \"max-min\" as the others do");
      require_one_sharing(values[k], "inside", cluster.kinds[k].inside);
      require_one_sharing(values[k], "across", cluster.kinds[k].across);
    }
  }
  summarise_kinds(cluster);
}

/// {"device": 5, "factor": 1.25} or {"node": 2, "factor": 1.25}.
SlowPlace read_slow_place(const JsonCursor& value, const Cluster& cluster) {
  value.only({"device", "node", "factor"});
  SlowPlace place;
  const auto device = value.find("device"), node = value.find("node");
  if (device.has_value() == node.has_value()) value.fail("a \"device\" or a \"node\"");
  place.is_node = node.has_value();
  place.number = place.is_node ? read_count(*node, 0, cluster.nodes - 1)
                               : read_count(*device, 0, cluster.devices() - 1);
  place.factor = value.at("factor").number(1, kMostSlowness);
  for (const SlowPlace& other : cluster.slow) {
    const int each = cluster.devices_per_node;
    const auto first = [&](const SlowPlace& one) { return one.number * (one.is_node ? each : 1); };
    const auto end = [&](const SlowPlace& one) { return first(one) + (one.is_node ? each : 1); };
    if (first(place) < end(other) && first(other) < end(place))
      (place.is_node ? *node : *device).fail("devices that are not named before");
  }
  return place;
}

/// What a cluster may have besides.
void read_sections(const JsonCursor& document, Cluster& cluster) {
  if (const auto slow = document.find("slow")) {
    for (const JsonCursor& place : slow->elements())
      cluster.slow.push_back(read_slow_place(place, cluster));
  }
  if (const auto section = document.find("collectives"))
    cluster.collectives = read_collectives(*section, cluster.devices_per_node);
  const auto network = document.find("network");
  if (!network && !shares_max_min(cluster.inside, cluster.across)) return;
  require_one_sharing(document, "inside", cluster.inside, network.has_value());
  require_one_sharing(document, "across", cluster.across, network.has_value());
  if (!network) return;
  cluster.network = read_network(*network, cluster);
  cluster.inside.sharing = cluster.across.sharing = Sharing::MaxMin;
}

Json device_json(const DeviceSpec& device) {
  return {{"kind", device.kind},
          {"model", device.model},
          {"memory_bytes", device.memory.value},
          {"peak_flops", device.flops}};
}

Json kinds_json(const Cluster& cluster) {
  Json list = Json::array();
  for (const NodeKind& kind : cluster.kinds) {
    Json json = {{"nodes", kind.nodes},
                 {"device", device_json(kind.device)},
                 {"inside", port_json(kind.inside)}};
    if (kind.across.bytes_per_second > 0) json["across"] = port_json(kind.across);
    list.push_back(json);
  }
  return list;
}

Json slow_json(const std::vector<SlowPlace>& places) {
  Json list = Json::array();
  for (const SlowPlace& place : places)
    list.push_back({{place.is_node ? "node" : "device", place.number}, {"factor", place.factor}});
  return list;
}

/// Bytes as they are: two machines that differ by a driver's reserve are two machines.
std::string device_line(const DeviceSpec& device, int nodes, int devices) {
  return device.kind + " " + device.model + ", " + std::to_string(device.memory.value) +
         " bytes, nodes " + std::to_string(nodes) + ", devices " + std::to_string(devices);
}

}  // namespace

double Cluster::slowness(int device_number) const {
  for (const SlowPlace& place : slow) {
    if (place.number == (place.is_node ? device_number / devices_per_node : device_number))
      return place.factor;
  }
  return 1;
}

std::string_view to_string(Sharing sharing) {
  switch (sharing) {
    case Sharing::None:
      return "none";
    case Sharing::Serial:
      return "serial";
    case Sharing::Fair:
      return "fair";
    case Sharing::MaxMin:
      return "max-min";
  }
  throw_bug(__FILE__, __LINE__, "a sharing has no name");
}

Sharing read_sharing(const JsonCursor& value) {
  return read_choice<Sharing>(value, {{"none", Sharing::None},
                                      {"serial", Sharing::Serial},
                                      {"fair", Sharing::Fair},
                                      {"max-min", Sharing::MaxMin}});
}

Cluster read_cluster(const JsonCursor& document) {
  if (is_paddle_cluster(document)) return read_paddle_cluster(document);
  require_schema_where_document(document, "cluster");
  Cluster cluster;
  if (const auto preset = document.find("preset")) {
    cluster = read_preset(document, *preset);
    if (const auto name = document.find("name")) {
      cluster.name = read_name(*name);
    }
    read_sections(document, cluster);
    return cluster;
  }
  const auto kinds = document.find("node_kinds");
  if (kinds) {
    if (const auto slow = document.find("slow"))
      slow->fail("none beside \"node_kinds\": make slow nodes a kind of their own");
    document.only({"schema", "name", "devices_per_node", "network_ports", "node_kinds"});
  } else {
    document.only({"schema", "name", "preset", "nodes", "devices_per_node", "network_ports",
                   "device", "inside", "across", "node_kinds", "collectives", "network", "slow"});
  }
  cluster.name = read_name(document.at("name"));
  if (!kinds) cluster.nodes = read_count(document.at("nodes"), 1, kMostDevices);
  const JsonCursor per_node = document.at("devices_per_node");
  cluster.devices_per_node = read_count(per_node, 1, kMostDevices);
  if (const auto ports = document.find("network_ports")) {
    cluster.network_ports = read_count(*ports, 1, cluster.devices_per_node);
  }
  if (kinds) {
    read_kinds(*kinds, cluster);
    require_few_devices(per_node, cluster);
    return cluster;
  }
  require_few_devices(per_node, cluster);
  cluster.device = read_device(document.at("device"));
  cluster.inside = read_port(document.at("inside"));
  cluster.across = read_across(document, cluster.nodes);
  read_sections(document, cluster);
  return cluster;
}

Json to_json(const Cluster& cluster) {
  Json json = {{"schema", "pipewright.cluster/1"}, {"name", cluster.name}};
  if (cluster.kinds.empty()) json["nodes"] = cluster.nodes;
  json["devices_per_node"] = cluster.devices_per_node;
  if (cluster.network_ports > 0) json["network_ports"] = cluster.network_ports;
  if (!cluster.kinds.empty()) {
    json["node_kinds"] = kinds_json(cluster);
    return json;
  }
  json["device"] = device_json(cluster.device);
  json["inside"] = port_json(cluster.inside);
  if (cluster.across.bytes_per_second > 0) {
    json["across"] = port_json(cluster.across);
  }
  if (cluster.collectives) json["collectives"] = to_json(*cluster.collectives);
  if (cluster.network) json["network"] = to_json(*cluster.network);
  if (!cluster.slow.empty()) json["slow"] = slow_json(cluster.slow);
  return json;
}

std::string fingerprint(const Cluster& cluster) {
  if (cluster.kinds.empty()) return device_line(cluster.device, cluster.nodes, cluster.devices());
  std::string line;
  for (const NodeKind& kind : cluster.kinds) {
    line += (line.empty() ? "" : "; ") +
            device_line(kind.device, kind.nodes, kind.nodes * cluster.devices_per_node);
  }
  return line;
}

}  // namespace pipewright
