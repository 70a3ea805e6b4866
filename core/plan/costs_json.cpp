#include "core/plan/costs_json.hpp"

#include <algorithm>

#include "core/base/json_fields.hpp"
#include "core/cluster/collectives.hpp"

namespace pipewright {

namespace {

constexpr double kMostCostRate = 1e18;

bool equal(const RouteCosts& a, const RouteCosts& b) {
  return a.latency == b.latency && a.bytes_per_second == b.bytes_per_second && a.links == b.links;
}

bool equal(const Link& a, const Link& b) {
  return a.name == b.name && a.bytes_per_second == b.bytes_per_second && a.sharing == b.sharing;
}

template <class T>
bool all_equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return equal(x, y); });
}

bool routes_come_from_cluster(const CostTable& costs, const CostContext& context) {
  // These are an estimate's: a cluster's own lead from each rank to itself in no time.
  if (costs.ranks_of_replica > 0) return false;
  for (const int device : context.device_of_rank) {
    if (device >= context.cluster.devices()) {
      return false;  // a made-up mesh of devices that the cluster does not have
    }
  }
  CostTable derived;
  // Of thousands of ranks the cluster's routes are many: made only where they may be the costs'
  // own.
  const std::size_t ranks = context.device_of_rank.size();
  const std::size_t edges = has_routes_of_edges(context.cluster) ? ranks * ranks : 0;
  if (costs.route_of_edge.size() != edges) return false;
  set_routes(derived, context.cluster, context.device_of_rank);
  return equal(derived.every_route, costs.every_route) &&
         all_equal(derived.route_of_edge, costs.route_of_edge) &&
         all_equal(derived.links, costs.links);
}

Bytes read_change(const JsonCursor& value) { return Bytes(value.integer(-kMostBytes, kMostBytes)); }

StageCosts read_stage(const JsonCursor& value) {
  value.only({"f_ns", "i_ns", "w_ns", "b_ns", "opt_ns", "reduce_ns", "unshard_ns"});
  StageCosts stage;
  stage.f = read_duration(value.at("f_ns"));
  stage.i = read_duration(value.at("i_ns"));
  stage.w = read_duration(value.at("w_ns"));
  const auto b = value.find("b_ns");
  stage.b = b ? read_duration(*b) : stage.i + stage.w;
  if (const auto opt = value.find("opt_ns")) {
    stage.opt = read_duration(*opt);
  }
  if (const auto reduce = value.find("reduce_ns")) stage.reduce = read_duration(*reduce);
  if (const auto unshard = value.find("unshard_ns")) stage.unshard = read_duration(*unshard);
  return stage;
}

StageMemory read_stage_memory(const JsonCursor& value) {
  value.only({"f_bytes", "i_bytes", "w_bytes", "constant_bytes", "in_f_bytes", "in_i_bytes",
              "in_w_bytes", "in_b_bytes", "version_bytes", "whole_gradients_bytes",
              "whole_weights_bytes", "copied_gradients_bytes", "copied_weights_bytes"});
  const auto size_or_0 = [&](std::string_view key) {
    const auto size = value.find(key);
    return size ? read_size(*size) : Bytes(0);
  };
  return {.f = read_change(value.at("f_bytes")),
          .i = read_change(value.at("i_bytes")),
          .w = read_change(value.at("w_bytes")),
          .constant = read_size(value.at("constant_bytes")),
          .in_f = size_or_0("in_f_bytes"),
          .in_i = size_or_0("in_i_bytes"),
          .in_w = size_or_0("in_w_bytes"),
          .in_b = size_or_0("in_b_bytes"),
          .version = size_or_0("version_bytes"),
          .whole_gradients = size_or_0("whole_gradients_bytes"),
          .whole_weights = size_or_0("whole_weights_bytes"),
          .copied_gradients = size_or_0("copied_gradients_bytes"),
          .copied_weights = size_or_0("copied_weights_bytes")};
}

std::vector<Bytes> read_messages(const JsonCursor& costs, std::string_view key, int stages) {
  std::vector<Bytes> sizes;
  const auto list = costs.find(key);
  if (!list) {
    return sizes;
  }
  for (const JsonCursor& size : list->elements()) {
    sizes.push_back(read_size(size));
  }
  if (!sizes.empty() && sizes.size() != static_cast<std::size_t>(stages - 1)) {
    list->fail(std::to_string(stages - 1) + " sizes, one for each boundary of stages");
  }
  return sizes;
}

RouteCosts read_route(const JsonCursor& value, std::size_t links) {
  RouteCosts route;
  route.latency = read_duration(value.at("latency_ns"));
  route.bytes_per_second = value.at("bytes_per_second").number(0, kMostCostRate);
  if (const auto list = value.find("links")) {
    for (const JsonCursor& link : list->elements()) {
      const std::int64_t most = static_cast<std::int64_t>(links) - 1;
      if (most < 0) {
        link.fail("no link, because the costs list none");
      }
      route.links.push_back(static_cast<std::uint32_t>(link.integer(0, most)));
    }
  }
  return route;
}

/// A transfer's time has to be one that parse_duration would accept.
void check_transfer_time(const JsonCursor& route, const RouteCosts& costs, Bytes largest) {
  const double rate = costs.bytes_per_second;
  const double most = static_cast<double>(kMostNanoseconds) * 1e-9;
  if (rate > 0 && static_cast<double>(largest.value) / rate > most) {
    route.at("bytes_per_second")
        .fail("a bandwidth over which the largest message (" + std::to_string(largest.value) +
              " bytes) takes at most 27 hours");
  }
}

Bytes largest_message(const CostTable& costs) {
  Bytes largest;
  for (const auto* sizes : {&costs.activation_bytes, &costs.gradient_bytes}) {
    for (const Bytes size : *sizes) {
      largest = std::max(largest, size);
    }
  }
  return largest;
}

void read_links(const JsonCursor& costs, CostTable& table) {
  const auto list = costs.find("links");
  if (!list) {
    return;
  }
  for (const JsonCursor& value : list->elements()) {
    value.only({"name", "bytes_per_second", "sharing"});
    Link link;
    link.name = read_name(value.at("name"));
    link.bytes_per_second = value.at("bytes_per_second").number(1, kMostCostRate);
    link.sharing = read_sharing(value.at("sharing"));
    table.links.push_back(std::move(link));
  }
  if (!table.shares_by_flow()) return;
  for (const JsonCursor& value : list->elements()) {
    const Sharing sharing = read_sharing(value.at("sharing"));
    if (sharing != Sharing::None && sharing != Sharing::MaxMin)
      value.at("sharing").fail("\"max-min\" or \"none\", because another link shares max-min");
  }
}

void read_edges(const JsonCursor& list, std::size_t ranks, CostTable& table) {
  const std::vector<JsonCursor> edges = list.elements();
  if (edges.empty()) {
    return;
  }
  table.route_of_edge.assign(ranks * ranks, table.every_route);
  for (const JsonCursor& edge : edges) {
    edge.only({"from", "to", "latency_ns", "bytes_per_second", "links"});
    const auto last = static_cast<std::int64_t>(ranks) - 1;
    const std::size_t from = static_cast<std::size_t>(edge.at("from").integer(0, last));
    const std::size_t to = static_cast<std::size_t>(edge.at("to").integer(0, last));
    RouteCosts route = read_route(edge, table.links.size());
    check_transfer_time(edge, route, largest_message(table));
    table.route_of_edge[from * ranks + to] = std::move(route);
  }
}

void read_routes(const JsonCursor& costs, const CostContext& context, CostTable& table) {
  const auto routes = costs.find("routes");
  if (routes && routes->value().is_string()) {
    if (routes->string() != "cluster") {
      routes->fail("\"cluster\", or a list of routes");
    }
    for (const char* key : {"every_route", "links"}) {
      if (const auto extra = costs.find(key)) {
        throw InputError(extra->file(), extra->pointer(),
                         "has no meaning where \"routes\" is \"cluster\"; remove one of the two");
      }
    }
    set_routes(table, context.cluster, context.device_of_rank);
    return;
  }
  read_links(costs, table);
  const JsonCursor every = costs.at("every_route");
  every.only({"latency_ns", "bytes_per_second", "links"});
  table.every_route = read_route(every, table.links.size());
  check_transfer_time(every, table.every_route, largest_message(table));
  if (routes) {
    read_edges(*routes, context.device_of_rank.size(), table);
  }
}

/// "collectives": "cluster" where the cluster's prices count, whatever the routes.
void read_collective_prices(const JsonCursor& costs, const CostContext& context, CostTable& table) {
  const auto word = costs.find("collectives");
  if (!word) {
    table.collectives = nullptr;
    return;
  }
  if (!word->value().is_string() || word->string() != "cluster") word->fail("\"cluster\"");
  if (!context.cluster.collectives) {
    throw InputError(word->file(), word->pointer(),
                     "the plan's cluster has no \"collectives\"; remove this, or add them there");
  }
  for (const int device : context.device_of_rank) {
    if (device >= context.cluster.devices()) word->fail("a mesh of devices that the cluster has");
  }
  set_collectives(table, context.cluster, context.device_of_rank);
}

Json route_json(const RouteCosts& route) {
  Json json = {{"latency_ns", route.latency.value}, {"bytes_per_second", route.bytes_per_second}};
  if (!route.links.empty()) {
    json["links"] = route.links;
  }
  return json;
}

Json edges_json(const CostTable& costs, std::size_t ranks) {
  Json edges = Json::array();
  if (costs.route_of_edge.empty()) return edges;
  const std::size_t each =
      costs.ranks_of_replica > 0 ? static_cast<std::size_t>(costs.ranks_of_replica) : ranks;
  for (std::size_t from = 0; from < ranks; ++from) {
    const std::size_t first = from / each * each;  // of its replica
    for (std::size_t to = 0; to < each; ++to) {
      const RouteCosts& route = costs.route_of_edge[(from - first) * each + to];
      if (equal(route, costs.every_route)) continue;
      Json edge = {{"from", from}, {"to", first + to}};
      edge.update(route_json(route));
      edges.push_back(std::move(edge));
    }
  }
  return edges;
}

void add_routes(const CostTable& costs, const CostContext& context, Json& json) {
  if (routes_come_from_cluster(costs, context)) {
    json["routes"] = "cluster";
    return;
  }
  if (!costs.links.empty()) {
    Json links = Json::array();
    for (const Link& link : costs.links) {
      links.push_back({{"name", link.name},
                       {"bytes_per_second", link.bytes_per_second},
                       {"sharing", to_string(link.sharing)}});
    }
    json["links"] = std::move(links);
  }
  json["every_route"] = route_json(costs.every_route);
  Json edges = edges_json(costs, context.device_of_rank.size());
  if (!edges.empty()) {
    json["routes"] = std::move(edges);
  }
}

Json sizes_json(const std::vector<Bytes>& sizes) {
  Json json = Json::array();
  for (const Bytes size : sizes) {
    json.push_back(size.value);
  }
  return json;
}

/// Whether the order has these actions is seen where the order is made.
std::shared_ptr<const ActionTimes> read_actions(const JsonCursor& list, const ReplicaShape& shape) {
  std::vector<ActionTime> rows;
  for (const JsonCursor& row : list.elements()) {
    row.only({"replica", "rank", "action", "ns"});
    ActionTime time;
    const auto replica = row.find("replica");
    time.replica = replica ? read_count(*replica, 0, shape.replicas - 1) : 0;
    time.rank = RankId(read_count(row.at("rank"), 0, shape.ranks - 1));
    const JsonCursor action = row.at("action");
    const auto cell = parse_timed_action(action.string());
    if (!cell) action.fail(std::string(kTimedActions));
    time.action = *cell;
    time.time = read_duration(row.at("ns"));
    rows.push_back(std::move(time));
  }
  return std::make_shared<ActionTimes>(std::move(rows), shape);
}

Json actions_json(const ActionTimes& times) {
  Json list = Json::array();
  for (const ActionTime& row : times.rows()) {
    list.push_back({{"replica", row.replica},
                    {"rank", row.rank.value},
                    {"action", to_string(row.action)},
                    {"ns", row.time.value}});
  }
  return list;
}

}  // namespace

CostTable read_costs(const JsonCursor& value, const CostContext& context) {
  value.only({"source", "stages", "actions", "memory", "activation_bytes", "gradient_bytes",
              "parameter_bytes", "tied_bytes", "overlapped_pair_ns", "routes", "every_route",
              "links", "collectives"});
  CostTable table;
  table.source = read_name(value.at("source"));
  const JsonCursor stages = value.at("stages");
  for (const JsonCursor& stage : stages.elements()) {
    table.stages.push_back(read_stage(stage));
  }
  if (table.stages.size() != static_cast<std::size_t>(context.stages)) {
    stages.fail("costs of the plan's " + std::to_string(context.stages) + " stages");
  }
  if (const auto actions = value.find("actions"))
    table.actions = read_actions(*actions, context.shape);
  if (const auto memory = value.find("memory")) {
    for (const JsonCursor& stage : memory->elements()) {
      table.memory.push_back(read_stage_memory(stage));
    }
    if (!table.memory.empty() && table.memory.size() != table.stages.size()) {
      memory->fail("memory of the plan's " + std::to_string(context.stages) + " stages");
    }
  }
  table.activation_bytes = read_messages(value, "activation_bytes", context.stages);
  table.gradient_bytes = read_messages(value, "gradient_bytes", context.stages);
  if (const auto sizes = value.find("parameter_bytes")) {
    for (const JsonCursor& size : sizes->elements())
      table.parameter_bytes.push_back(read_size(size));
    if (!table.parameter_bytes.empty() && table.parameter_bytes.size() != table.stages.size()) {
      sizes->fail("one size for each of the plan's " + std::to_string(context.stages) + " stages");
    }
  }
  if (const auto tied = value.find("tied_bytes")) table.tied_bytes = read_size(*tied);
  if (const auto pair = value.find("overlapped_pair_ns")) {
    table.overlapped_pair = read_duration(*pair);
  }
  read_routes(value, context, table);
  read_collective_prices(value, context, table);
  return table;
}

Json costs_json(const CostTable& costs, const CostContext& context) {
  Json stages = Json::array(), memory = Json::array();
  for (const StageCosts& stage : costs.stages) {
    Json each = {{"f_ns", stage.f.value},
                 {"i_ns", stage.i.value},
                 {"w_ns", stage.w.value},
                 {"b_ns", stage.b.value},
                 {"opt_ns", stage.opt.value}};
    if (stage.reduce.value > 0) each["reduce_ns"] = stage.reduce.value;
    if (stage.unshard.value > 0) each["unshard_ns"] = stage.unshard.value;
    stages.push_back(std::move(each));
  }
  for (const StageMemory& stage : costs.memory) {
    Json each = {{"f_bytes", stage.f.value},
                 {"i_bytes", stage.i.value},
                 {"w_bytes", stage.w.value},
                 {"constant_bytes", stage.constant.value}};
    if (stage.in_f.value > 0) each["in_f_bytes"] = stage.in_f.value;
    if (stage.in_i.value > 0) each["in_i_bytes"] = stage.in_i.value;
    if (stage.in_w.value > 0) each["in_w_bytes"] = stage.in_w.value;
    if (stage.in_b.value > 0) each["in_b_bytes"] = stage.in_b.value;
    if (stage.version.value > 0) each["version_bytes"] = stage.version.value;
    if (stage.whole_gradients.value > 0)
      each["whole_gradients_bytes"] = stage.whole_gradients.value;
    if (stage.whole_weights.value > 0) each["whole_weights_bytes"] = stage.whole_weights.value;
    if (stage.copied_gradients.value > 0)
      each["copied_gradients_bytes"] = stage.copied_gradients.value;
    if (stage.copied_weights.value > 0) each["copied_weights_bytes"] = stage.copied_weights.value;
    memory.push_back(std::move(each));
  }
  Json json = {{"source", costs.source}, {"stages", std::move(stages)}};
  if (costs.actions != nullptr) json["actions"] = actions_json(*costs.actions);
  json["memory"] = std::move(memory);
  json["activation_bytes"] = sizes_json(costs.activation_bytes);
  json["gradient_bytes"] = sizes_json(costs.gradient_bytes);
  if (!costs.parameter_bytes.empty()) json["parameter_bytes"] = sizes_json(costs.parameter_bytes);
  if (costs.tied_bytes.value > 0) json["tied_bytes"] = costs.tied_bytes.value;
  json["overlapped_pair_ns"] = costs.overlapped_pair.value;
  add_routes(costs, context, json);
  if (costs.collectives != nullptr) json["collectives"] = "cluster";
  return json;
}

}  // namespace pipewright
