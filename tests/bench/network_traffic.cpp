// The patterns: what goes over which network.
#include <algorithm>
#include <numeric>
#include <random>

#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/bench/network_pattern.hpp"

namespace pipewright::bench {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

/// Devices with a port each of 50 GB/s and NVLink of 450 GB/s.
Cluster cluster(int nodes, int each, std::string_view network, int ports = 0) {
  Json json = {
      {"schema", "pipewright.cluster/1"},
      {"name", "test"},
      {"nodes", nodes},
      {"devices_per_node", each},
      {"device",
       {{"kind", "cuda"}, {"model", "GPU"}, {"memory_bytes", 1'000'000'000}, {"peak_flops", 1e12}}},
      {"inside", {{"latency_ns", 2000}, {"bytes_per_second", 450e9}}},
      {"across", {{"latency_ns", 5000}, {"bytes_per_second", 50e9}}},
      {"network", parse_json(network, "network")}};
  if (ports > 0) json["network_ports"] = ports;
  return read_cluster(JsonCursor(json, "cluster"));
}

constexpr std::string_view kFlat = R"({"kind": "fat-tree", "levels": [{}]})";
constexpr std::string_view kTwoToOne = R"({"kind": "fat-tree", "routing": "packet", "levels": [
    {"joins": 2, "oversubscription": 2, "latency_ns": 600}, {}]})";
constexpr std::string_view kFourToOne = R"({"kind": "fat-tree", "routing": "packet", "levels": [
    {"joins": 2, "oversubscription": 4, "latency_ns": 600}, {}]})";
constexpr std::string_view kHashed = R"({"kind": "fat-tree", "levels": [
    {"joins": 2, "oversubscription": 1, "latency_ns": 600}, {}]})";
constexpr std::string_view kThree = R"({"kind": "fat-tree", "levels": [
    {"joins": 2, "oversubscription": 2, "latency_ns": 600},
    {"joins": 2, "uplinks": 1, "latency_ns": 600}, {}]})";
constexpr std::string_view kRails = R"({"kind": "fat-tree", "rails": 8, "levels": [
    {"joins": 2, "oversubscription": 2, "latency_ns": 600}, {}]})";
constexpr std::string_view kRailsOnly =
    R"({"kind": "fat-tree", "rails": 8, "between_rails": "nodes", "levels": [{}]})";
constexpr std::string_view kCables = R"({"kind": "cables", "cables": [
    {"from": "node 0 port 0", "to": "a", "bytes_per_second": 5e10, "latency_ns": 100},
    {"from": "node 1 port 0", "to": "a", "bytes_per_second": 5e10, "latency_ns": 100},
    {"from": "node 2 port 0", "to": "b", "bytes_per_second": 5e10, "latency_ns": 100},
    {"from": "node 3 port 0", "to": "b", "bytes_per_second": 5e10, "latency_ns": 100},
    {"from": "a", "to": "b", "bytes_per_second": 2.5e10, "latency_ns": 900}]})";

/// Rank r on device r.
Pattern on(std::string name, const Cluster& where) {
  Pattern pattern;
  pattern.name = std::move(name);
  pattern.ranks = where.devices();
  std::vector<int> devices(static_cast<std::size_t>(pattern.ranks));
  std::iota(devices.begin(), devices.end(), 0);
  set_routes(pattern.costs, where, devices);
  return pattern;
}

void send(Pattern& pattern, int from, int to, std::int64_t bytes, std::int64_t start = 0,
          std::vector<int> after = {}) {
  pattern.transfers.push_back(
      {Transfer::Kind::Message, {from, to}, bytes, start, std::move(after)});
}

void together(Pattern& pattern, Transfer::Kind kind, std::vector<int> members, std::int64_t bytes,
              std::int64_t start = 0) {
  pattern.transfers.push_back({kind, std::move(members), bytes, start, {}});
}

std::vector<int> every(int first, int step, int count) {
  std::vector<int> ranks;
  for (int r = 0; r < count; ++r) ranks.push_back(first + r * step);
  return ranks;
}

/// Of single messages.
void add_messages(std::vector<Pattern>& all) {
  Pattern one = on("one message between nodes", cluster(2, 8, kFlat));
  send(one, 0, 8, 64 * kMegabyte);
  all.push_back(one);

  Pattern small = on("one small message", cluster(2, 8, kFlat));
  send(small, 0, 8, 4096);
  all.push_back(small);

  Pattern inside = on("one message inside a node", cluster(2, 8, kFlat));
  send(inside, 0, 5, 64 * kMegabyte);
  all.push_back(inside);

  Pattern two = on("two messages out of one port", cluster(3, 8, kFlat));
  send(two, 0, 8, 32 * kMegabyte);
  send(two, 0, 16, 32 * kMegabyte);
  all.push_back(two);

  Pattern incast = on("incast of seven", cluster(8, 8, kFlat));
  for (int node = 1; node < 8; ++node) send(incast, node * 8, 0, (4 + node) * kMegabyte);
  all.push_back(incast);

  Pattern late = on("incast, one after the other", cluster(8, 8, kFlat));
  for (int node = 1; node < 8; ++node) send(late, node * 8, 0, 8 * kMegabyte, node * 100'000);
  all.push_back(late);

  Pattern left = on("what one cannot use", cluster(3, 8, kFlat));
  send(left, 0, 8, 16 * kMegabyte);
  send(left, 16, 8, 16 * kMegabyte);
  send(left, 16, 9, 16 * kMegabyte);
  send(left, 17, 9, 16 * kMegabyte);
  send(left, 18, 9, 16 * kMegabyte);
  all.push_back(left);

  Pattern chain = on("each sends on what came", cluster(8, 8, kFlat));
  for (int hop = 0; hop < 7; ++hop)
    send(chain, hop * 8, hop * 8 + 8, 8 * kMegabyte, 0,
         hop > 0 ? std::vector{hop - 1} : std::vector<int>{});
  all.push_back(chain);

  Pattern both = on("both directions", cluster(2, 8, kFlat));
  for (int d = 0; d < 8; ++d) {
    send(both, d, 8 + d, 16 * kMegabyte);
    send(both, 8 + d, d, (8 + d) * kMegabyte);
  }
  all.push_back(both);

  Pattern unlike = on("large and small", cluster(4, 8, kFlat));
  for (int k = 0; k < 24; ++k) send(unlike, 8, 0, k % 3 == 0 ? 32 * kMegabyte : 65'536, k * 50'000);
  all.push_back(unlike);
}

/// Nodes' devices d of 8, each to the same place `far` nodes on.
void permutation(Pattern& pattern, int far, std::int64_t bytes, std::int64_t apart = 0) {
  for (int r = 0; r < pattern.ranks; ++r)
    send(pattern, r, (r + far * 8) % pattern.ranks, bytes, r * apart);
}

void add_trees(std::vector<Pattern>& all) {
  const auto shifted = [&](std::string name, const Cluster& where, int far,
                           std::int64_t apart = 0) {
    Pattern pattern = on(std::move(name), where);
    permutation(pattern, far, 16 * kMegabyte, apart);
    all.push_back(std::move(pattern));
  };
  shifted("permutation, one switch", cluster(8, 8, kFlat), 3);
  shifted("permutation over leaves, 2 : 1", cluster(8, 8, kTwoToOne), 3);
  shifted("permutation over leaves, 4 : 1", cluster(8, 8, kFourToOne), 3);
  shifted("permutation, half of it inside leaves, 4 : 1", cluster(8, 8, kFourToOne), 1);
  shifted("permutation, staggered, 4 : 1", cluster(8, 8, kFourToOne), 1, 20'000);
  shifted("permutation, uplinks by flow", cluster(8, 8, kHashed), 3);
  shifted("permutation, staggered, uplinks by flow", cluster(8, 8, kHashed), 1, 30'000);
  shifted("permutation, three levels", cluster(8, 8, kThree), 5);
  shifted("permutation, staggered, three levels", cluster(8, 8, kThree), 3, 10'000);
  shifted("permutation, two ports a node", cluster(8, 8, kFlat, 2), 3);
  shifted("permutation, rails, 2 : 1", cluster(8, 8, kRails), 3);

  for (const auto& [name, network] : {std::pair("between rails, met above, 2 : 1", kRails),
                                      std::pair("between rails, met in nodes", kRailsOnly)}) {
    Pattern pattern = on(name, cluster(4, 8, network));
    for (int d = 0; d < 8; ++d) send(pattern, d, 8 + (d + 3) % 8, 16 * kMegabyte);
    for (int d = 0; d < 8; ++d) send(pattern, d, 8 + d, 16 * kMegabyte, 200'000);
    all.push_back(std::move(pattern));
  }

  Pattern cables = on("cables by name", cluster(4, 2, kCables, 1));
  for (int r = 0; r < 8; ++r) send(cables, r, (r + 3) % 8, (r + 4) * kMegabyte, r * 40'000);
  all.push_back(cables);
}

void add_collectives(std::vector<Pattern>& all) {
  using Kind = Transfer::Kind;
  Pattern ring = on("all-reduce of a node", cluster(2, 8, kFlat));
  together(ring, Kind::AllReduce, every(0, 1, 8), 256 * kMegabyte);
  all.push_back(ring);

  Pattern wide = on("all-reduce over 8 nodes", cluster(8, 8, kFlat));
  together(wide, Kind::AllReduce, every(0, 8, 8), 256 * kMegabyte);
  all.push_back(wide);

  Pattern eight = on("eight all-reduces side by side, two ports a node", cluster(8, 8, kFlat, 2));
  for (int d = 0; d < 8; ++d) together(eight, Kind::AllReduce, every(d, 8, 8), 64 * kMegabyte);
  all.push_back(eight);

  Pattern over = on("eight all-reduces over leaves, 4 : 1", cluster(8, 8, kFourToOne));
  for (int d = 0; d < 8; ++d) together(over, Kind::AllReduce, every(d, 8, 8), 64 * kMegabyte);
  all.push_back(over);

  Pattern rails = on("eight all-reduces on rails, 2 : 1", cluster(8, 8, kRails));
  for (int d = 0; d < 8; ++d) together(rails, Kind::AllReduce, every(d, 8, 8), 64 * kMegabyte);
  all.push_back(rails);

  Pattern domain = on("NVLink domain of 72, all-reduce of all", cluster(2, 72, kFlat));
  together(domain, Kind::AllReduce, every(0, 1, 72), 256 * kMegabyte);
  all.push_back(domain);

  Pattern nvl = on("two NVLink domains of 72, 72 rings of two", cluster(2, 72, kFlat));
  for (int d = 0; d < 72; ++d)
    together(nvl, Kind::AllReduce, {d, 72 + d}, (16 + d % 5) * kMegabyte);
  all.push_back(nvl);

  Pattern experts = on("all-to-all over 4 nodes", cluster(4, 8, kFlat));
  together(experts, Kind::AllToAll, every(0, 1, 32), 64 * kMegabyte);
  all.push_back(experts);

  Pattern exchanged = on("all-to-all over leaves, 4 : 1", cluster(4, 8, kFourToOne));
  together(exchanged, Kind::AllToAll, every(0, 4, 8), 64 * kMegabyte);
  all.push_back(exchanged);

  Pattern pairs = on("messages between all pairs at once, 4 : 1", cluster(4, 8, kFourToOne));
  for (int from = 0; from < 32; from += 4)
    for (int to = 0; to < 32; to += 4)
      if (from != to) send(pairs, from, to, 8 * kMegabyte);
  all.push_back(pairs);

  Pattern mixed = on("tensor, expert, data and pipeline at once, 2 : 1", cluster(8, 8, kTwoToOne));
  for (int node = 0; node < 8; ++node)
    together(mixed, Kind::AllReduce, every(node * 8, 1, 8), 64 * kMegabyte);
  for (int d = 0; d < 8; d += 2) together(mixed, Kind::AllReduce, every(d, 16, 4), 32 * kMegabyte);
  together(mixed, Kind::AllToAll, every(1, 8, 8), 32 * kMegabyte);
  for (int d = 0; d < 8; ++d) send(mixed, d, 24 + d, 16 * kMegabyte, 300'000);
  all.push_back(mixed);

  Pattern beside = on("a ring beside messages", cluster(4, 8, kFlat));
  together(beside, Kind::AllReduce, every(0, 8, 4), 128 * kMegabyte);
  for (int k = 0; k < 6; ++k) send(beside, 0, 8, 16 * kMegabyte, k * 1'000'000);
  all.push_back(beside);
}

/// Nothing regular: sizes over three decades, any two devices, any moment, some rings among them.
void add_random(std::vector<Pattern>& all) {
  std::mt19937 random(25);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (const auto& [name, network] : {std::pair("random, one switch", kFlat),
                                      {"random, 4 : 1", kFourToOne},
                                      {"random, uplinks by flow", kHashed},
                                      {"random, three levels", kThree},
                                      {"random, rails met above", kRails},
                                      {"random, rails met in nodes", kRailsOnly}}) {
    for (const int rings : {0, 6}) {
      Pattern pattern =
          on(std::string(name) + (rings > 0 ? ", rings too" : ""), cluster(8, 8, network));
      for (int k = 0; k < 200; ++k) {
        const int from = below(64), to = (from + 1 + below(63)) % 64;
        send(pattern, from, to, 20'000 << below(11), below(2'000'000));
      }
      for (int k = 0; k < rings; ++k) {
        together(pattern, Transfer::Kind::AllReduce, every(below(8), 8, 2 + below(7)),
                 (8 + below(64)) * kMegabyte, below(1'000'000));
      }
      all.push_back(std::move(pattern));
    }
  }
}

/// A whole step as the engine runs it: when each message and each sum of gradients began, and what
/// it took. The other simulator gets the beginnings.
Pattern step(std::string name, const Cluster& where, int pipeline, int replicas,
             const std::vector<int>& devices) {
  Pattern pattern;
  pattern.name = std::move(name);
  pattern.ranks = pipeline * replicas;
  const Order order = planner::replicate(
      planner::make_order("1f1b",
                          {.ranks = pipeline, .micro_batches = 8, .chunks = 1, .parameters = {}}),
      replicas);
  const Program program =
      lower(order, comm_policy_preset("torch-2.15-per-edge"), {.optimizer = true});
  CostTable& costs = pattern.costs;
  costs = CostTable::uniform(pipeline, {.f = Nanoseconds(400'000),
                                        .i = Nanoseconds(400'000),
                                        .w = Nanoseconds(400'000),
                                        .b = Nanoseconds(800'000),
                                        .opt = Nanoseconds(100'000)});
  costs.activation_bytes.assign(static_cast<std::size_t>(pipeline - 1), Bytes(24 * kMegabyte));
  costs.gradient_bytes = costs.activation_bytes;
  for (int s = 0; s < pipeline; ++s) costs.parameter_bytes.emplace_back((80 + 10 * s) * kMegabyte);
  set_routes(costs, where, devices);
  const Timeline times = sim::simulate(program, costs).timeline;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_send(in.kind)) continue;
    const Route& route = program.routes[in.route];
    pattern.transfers.push_back(
        {Transfer::Kind::Message,
         {static_cast<int>(route.source.value), static_cast<int>(route.destination.value)},
         costs.message_bytes(route).value,
         times.moving[id],
         {}});
    pattern.ours.push_back({times.moving[id], times.end[id]});
  }
  for (const Collective& collective : program.collectives) {
    const InstructionId first = collective.members.front().instruction;
    Transfer sum{Transfer::Kind::AllReduce,
                 {},
                 *costs.collective_bytes(collective),
                 times.moving[first],
                 {}};
    for (const auto& member : collective.members)
      sum.ranks.push_back(static_cast<int>(member.rank.value));
    pattern.transfers.push_back(std::move(sum));
    pattern.ours.push_back({times.moving[first], times.end[first]});
  }
  return pattern;
}

void add_steps(std::vector<Pattern>& all) {
  std::vector<int>
      spread;  // replica d of rank r on device 4 r + d of four nodes with two ports each
  for (int d = 0; d < 4; ++d)
    for (int r = 0; r < 4; ++r) spread.push_back(r * 8 + 2 * d);
  all.push_back(
      step("1F1B of 4 by 4 replicas inside nodes", cluster(4, 8, kTwoToOne, 2), 4, 4, spread));
  std::vector<int> apart;  // replicas on nodes of their own, a pipeline over two of them
  for (int d = 0; d < 4; ++d)
    for (int r = 0; r < 4; ++r) apart.push_back((r / 2 * 4 + d) * 8 + r % 2 * 4);
  all.push_back(step("1F1B of 4 by 4 replicas across leaves, 4 : 1", cluster(8, 8, kFourToOne, 2),
                     4, 4, apart));
  all.push_back(
      step("1F1B of 8 by 2 replicas, rails", cluster(16, 8, kRails), 8, 2, every(0, 8, 16)));
}

}  // namespace

std::vector<Pattern> network_patterns() {
  std::vector<Pattern> all;
  add_messages(all);
  add_trees(all);
  add_collectives(all);
  add_random(all);
  add_steps(all);
  return all;
}

}  // namespace pipewright::bench
