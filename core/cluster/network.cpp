#include "core/cluster/network.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/network_paths.hpp"

namespace pipewright {
namespace {

constexpr double kMostLinkRate = 1e18;  // bytes in a second
constexpr int kMostLevels = 8, kMostCables = 100'000, kMostCopies = 4096;
/// Of the switches and links that stand side by side in a group: they are numbered.
constexpr std::int64_t kMostWays = 1LL << 31;

/// What a switch has below it: so many links at such a rate.
struct Below {
  std::int64_t links = 0;
  double bytes_per_second = 0;
};

int read_uplinks(const JsonCursor& value, const NetworkLevel& level, const Below& below) {
  if (const auto count = value.find("uplinks")) {
    if (value.find("oversubscription")) value.fail("\"uplinks\" or \"oversubscription\", not both");
    return read_count(*count, 1, kMostDevices);
  }
  const JsonCursor times = value.at("oversubscription");
  const double exact = static_cast<double>(below.links) * below.bytes_per_second /
                       (times.number(1e-3, 1e6) * level.bytes_per_second);
  const double whole = std::round(exact);
  if (whole < 1 || whole > kMostDevices || std::abs(exact - whole) > 1e-9 * whole) {
    times.fail("a number that gives a switch whole uplinks: " + std::to_string(below.links) +
               " links below make " + std::to_string(exact) +
               " above; change it, or say \"uplinks\"");
  }
  return static_cast<int>(whole);
}

void read_levels(const JsonCursor& list, const Cluster& cluster, Network& network) {
  const std::vector<JsonCursor> values = list.elements();
  if (values.empty() || values.size() > kMostLevels)
    list.fail("1 to " + std::to_string(kMostLevels) + " levels, the leaves first");
  std::int64_t reached = 1, ways = 1;
  Below below{ports_of_node(cluster) / network.rails, cluster.across.bytes_per_second};
  for (const JsonCursor& value : values) {
    const bool is_last = &value == &values.back(), is_second = network.levels.size() == 1;
    if (is_last) {
      value.only({"joins"});
    } else {
      value.only({"joins", "uplinks", "oversubscription", "bytes_per_second", "latency_ns"});
    }
    NetworkLevel level;
    const auto joins = value.find("joins");
    if (joins || !is_last) {
      level.joins = read_count(value.at("joins"), 1, kMostDevices);
    } else {
      level.joins = static_cast<int>((cluster.nodes + reached - 1) / reached);
    }
    reached = std::min<std::int64_t>(reached * level.joins, kMostDevices);
    if (is_second && !network.rails_meet_in_nodes) below.links *= network.rails;
    below.links *= level.joins;
    if (!is_last) {
      const auto rate = value.find("bytes_per_second");
      level.bytes_per_second = rate ? rate->number(1, kMostLinkRate) : below.bytes_per_second;
      if (const auto latency = value.find("latency_ns")) level.latency = read_duration(*latency);
      level.uplinks = read_uplinks(value, level, below);
      ways *= level.uplinks;
      if (ways > kMostWays) value.fail("fewer uplinks: 2^31 ways side by side are the most");
      below = {1, level.bytes_per_second};
    } else if (reached < cluster.nodes) {
      (joins ? *joins : value)
          .fail("levels that join all " + std::to_string(cluster.nodes) +
                " nodes in the end; these join " + std::to_string(reached));
    }
    network.levels.push_back(level);
  }
}

void read_rails(const JsonCursor& value, const Cluster& cluster, Network& network) {
  const auto between = value.find("between_rails");
  if (between) {
    network.rails_meet_in_nodes =
        read_choice<bool>(*between, {{"switches", false}, {"nodes", true}});
  }
  const auto rails = value.find("rails");
  if (!rails) return;
  const int ports = ports_of_node(cluster);
  network.rails = read_count(*rails, 1, ports);
  if (ports % network.rails != 0)
    rails->fail("a number of rails that divides the " + std::to_string(ports) + " ports of a node");
  if (network.rails > 1 && !network.rails_meet_in_nodes &&
      value.at("levels").elements().size() == 1) {
    rails->fail(
        "a second level, on which the rails meet, or \"between_rails\": \"nodes\", which lets a "
        "message change the rail inside its node");
  }
}

Cable read_cable(const JsonCursor& value, const Cluster& cluster) {
  value.only({"from", "to", "count", "bytes_per_second", "latency_ns"});
  Cable cable;
  const auto end = [&](const char* key) {
    const JsonCursor name = value.at(key);
    std::string text = read_name(name);
    if (text.starts_with("node ") && port_named(text, cluster) < 0) {
      name.fail("a port that the cluster has, such as \"node 0 port 0\"; nodes count from 0 to " +
                std::to_string(cluster.nodes - 1) + ", their ports from 0 to " +
                std::to_string(ports_of_node(cluster) - 1));
    }
    return text;
  };
  cable.from = end("from");
  cable.to = end("to");
  if (cable.from == cable.to) value.at("to").fail("another end than \"from\"");
  if (const auto count = value.find("count")) cable.count = read_count(*count, 1, kMostCopies);
  cable.bytes_per_second = value.at("bytes_per_second").number(1, kMostLinkRate);
  if (const auto latency = value.find("latency_ns")) cable.latency = read_duration(*latency);
  return cable;
}

void read_cables(const JsonCursor& list, const Cluster& cluster, Network& network) {
  const std::vector<JsonCursor> values = list.elements();
  if (values.size() > kMostCables) list.fail("at most " + std::to_string(kMostCables) + " cables");
  for (const JsonCursor& value : values) network.cables.push_back(read_cable(value, cluster));
  const std::string apart = unreached_port(network, cluster);
  if (!apart.empty()) {
    list.fail(
        "cables that lead from every port to every other through switches; none of these "
        "leads from \"node 0 port 0\" to \"" +
        apart + "\"");
  }
}

Network read_object(const JsonCursor& value, const Cluster& cluster) {
  Network network;
  const bool tree = read_choice<bool>(value.at("kind"), {{"fat-tree", true}, {"cables", false}});
  if (!tree) {
    value.only({"kind", "cables"});
    read_cables(value.at("cables"), cluster, network);
    return network;
  }
  value.only({"kind", "rails", "between_rails", "routing", "levels"});
  read_rails(value, cluster, network);
  if (const auto routing = value.find("routing"))
    network.by_packet = read_choice<bool>(*routing, {{"flow", false}, {"packet", true}});
  read_levels(value.at("levels"), cluster, network);
  return network;
}

}  // namespace

int ports_of_node(const Cluster& cluster) {
  return cluster.network_ports > 0 ? cluster.network_ports : cluster.devices_per_node;
}

int port_of(const Cluster& cluster, int local_device) {
  return static_cast<int>(static_cast<std::int64_t>(local_device) * ports_of_node(cluster) /
                          cluster.devices_per_node);
}

int first_on_port(const Cluster& cluster, int port) {
  const std::int64_t ports = ports_of_node(cluster);
  return static_cast<int>((port * static_cast<std::int64_t>(cluster.devices_per_node) + ports - 1) /
                          ports);
}

std::int64_t port_named(std::string_view name, const Cluster& cluster) {
  std::int64_t numbers[2] = {};
  const std::string_view words[2] = {"node ", " port "};
  for (int n = 0; n < 2; ++n) {
    if (!name.starts_with(words[n])) return -1;
    name.remove_prefix(words[n].size());
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), numbers[n]);
    if (error != std::errc() || numbers[n] < 0) return -1;
    name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
  }
  const int ports = ports_of_node(cluster);
  if (!name.empty() || numbers[0] >= cluster.nodes || numbers[1] >= ports) return -1;
  return numbers[0] * ports + numbers[1];
}

Network read_network(const JsonCursor& value, const Cluster& cluster) {
  if (cluster.nodes < 2) value.fail("no network where there is one node; remove it");
  if (!value.value().is_string()) return read_object(value, cluster);
  const std::string path = read_path(value);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    value.fail("an object, or the path of a file that exists");
  const Json document = parse_json(read_text(path), path);
  return read_object(JsonCursor(document, path), cluster);
}

Json to_json(const Network& network) {
  if (network.levels.empty()) {
    Json cables = Json::array();
    for (const Cable& cable : network.cables) {
      cables.push_back({{"from", cable.from},
                        {"to", cable.to},
                        {"count", cable.count},
                        {"bytes_per_second", cable.bytes_per_second},
                        {"latency_ns", cable.latency.value}});
    }
    return {{"kind", "cables"}, {"cables", std::move(cables)}};
  }
  Json levels = Json::array();
  for (const NetworkLevel& level : network.levels) {
    Json json = {{"joins", level.joins}};
    if (level.uplinks > 0) {
      json["uplinks"] = level.uplinks;
      json["bytes_per_second"] = level.bytes_per_second;
      json["latency_ns"] = level.latency.value;
    }
    levels.push_back(std::move(json));
  }
  return {{"kind", "fat-tree"},
          {"rails", network.rails},
          {"between_rails", network.rails_meet_in_nodes ? "nodes" : "switches"},
          {"routing", network.by_packet ? "packet" : "flow"},
          {"levels", std::move(levels)}};
}

double least_share_upwards(const Cluster& cluster) {
  double share = 1;
  if (!cluster.network) return share;
  const Network& network = *cluster.network;
  const double port_rate = cluster.across.bytes_per_second;
  double nodes = 1, uplinks = network.rails;  // of a group, all its switches of the level together
  for (const NetworkLevel& level : network.levels) {
    nodes *= level.joins;
    uplinks *= level.uplinks;
    if (nodes >= cluster.nodes) break;  // nothing has to go higher
    share = std::min(
        share, uplinks * level.bytes_per_second / (nodes * ports_of_node(cluster) * port_rate));
    if (!network.rails_meet_in_nodes && &level == &network.levels.front()) uplinks /= network.rails;
  }
  return share;
}

}  // namespace pipewright
