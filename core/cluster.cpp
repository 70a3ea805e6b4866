// cluster.json: reading and writing.
#include "core/cluster.hpp"

#include "core/error.hpp"
#include "core/json_fields.hpp"

namespace pipewright {

namespace {

constexpr int kMostDevices = 65536;
constexpr double kMostRate = 1e18;  // bytes or operations in a second

PortSpec read_port(const JsonCursor& value) {
  value.only({"latency_ns", "bytes_per_second", "sharing"});
  PortSpec port;
  port.latency = read_duration(value.at("latency_ns"));
  port.bytes_per_second = value.at("bytes_per_second").number(1, kMostRate);
  if (const auto sharing = value.find("sharing")) {
    port.sharing = read_choice<Sharing>(
        *sharing, {{"none", Sharing::None}, {"serial", Sharing::Serial}, {"fair", Sharing::Fair}});
  }
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
  document.only({"schema", "name", "preset", "devices"});
  int devices = 0;
  const std::optional<JsonCursor> count = document.find("devices");
  if (count) {
    devices = read_count(*count, 1, kMostDevices);
  }
  const std::string name = preset.string();
  parsed_at(preset, [&] { return cluster_preset(name); });  // blames the name
  return parsed_at(count ? *count : preset, [&] { return cluster_preset(name, devices); });
}

}  // namespace

std::string_view to_string(Sharing sharing) {
  switch (sharing) {
    case Sharing::None:
      return "none";
    case Sharing::Serial:
      return "serial";
    case Sharing::Fair:
      return "fair";
  }
  throw_bug(__FILE__, __LINE__, "a sharing has no name");
}

Cluster read_cluster(const JsonCursor& document) {
  require_schema_where_document(document, "cluster");
  Cluster cluster;
  if (const auto preset = document.find("preset")) {
    cluster = read_preset(document, *preset);
    if (const auto name = document.find("name")) {
      cluster.name = read_name(*name);
    }
    return cluster;
  }
  document.only(
      {"schema", "name", "preset", "nodes", "devices_per_node", "device", "inside", "across"});
  cluster.name = read_name(document.at("name"));
  cluster.nodes = read_count(document.at("nodes"), 1, kMostDevices);
  const JsonCursor per_node = document.at("devices_per_node");
  cluster.devices_per_node = read_count(per_node, 1, kMostDevices);
  if (static_cast<std::int64_t>(cluster.nodes) * cluster.devices_per_node > kMostDevices) {
    per_node.fail("at most 65536 devices in all");
  }
  cluster.device = read_device(document.at("device"));
  cluster.inside = read_port(document.at("inside"));
  if (const auto across = document.find("across")) {
    cluster.across = read_port(*across);
  } else if (cluster.nodes > 1) {
    throw InputError(document.file(), document.pointer(),
                     "expected a member \"across\", because there is more than one node; add it");
  }
  return cluster;
}

Json to_json(const Cluster& cluster) {
  Json json = {{"schema", "pipewright.cluster/1"},
               {"name", cluster.name},
               {"nodes", cluster.nodes},
               {"devices_per_node", cluster.devices_per_node},
               {"device",
                {{"kind", cluster.device.kind},
                 {"model", cluster.device.model},
                 {"memory_bytes", cluster.device.memory.value},
                 {"peak_flops", cluster.device.flops}}},
               {"inside", port_json(cluster.inside)}};
  if (cluster.across.bytes_per_second > 0) {
    json["across"] = port_json(cluster.across);
  }
  return json;
}

std::string fingerprint(const Cluster& cluster) {
  // Bytes as they are: two machines that differ by a driver's reserve are two machines.
  return cluster.device.kind + " " + cluster.device.model + ", " +
         std::to_string(cluster.device.memory.value) + " bytes, nodes " +
         std::to_string(cluster.nodes) + ", devices " + std::to_string(cluster.devices());
}

}  // namespace pipewright
