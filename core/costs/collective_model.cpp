#include "core/costs/collective_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

struct Way {
  CollectiveAlgorithm algorithm;
  double ns;  // steps and moving bytes; launch and protocol aside
};

/// One collective and the machine, with the numbers that formulas share.
struct Pricing {
  const CollectiveModel& model;
  ActionKind kind;
  CollectiveGroup group;
  double n, nodes, bytes;

  double rounds() const { return kind == ActionKind::AllReduce ? 2 : 1; }
  double inside(double moved) const { return moved / model.bytes_per_second * 1e9; }
  double across(double moved) const { return moved / model.across_bytes_per_second * 1e9; }
  double steps(double all, double between) const {
    return (all - between) * model.step_ns + between * model.across_step_ns;
  }
  /// A stream of bytes that passes through every node and every member.
  double stream(double moved) const {
    return group.nodes > 1 ? std::max(inside(moved), across(moved)) : inside(moved);
  }
};

/// Patarasuk and Yuan 2009. Between nodes as many rings as ports lie side by side, each of them
/// through every node once, so that a part crosses from node to node once in each round and node.
Way ring(const Pricing& p) {
  if (p.kind == ActionKind::RingSend)
    return {CollectiveAlgorithm::Ring, p.steps(1, p.group.nodes > 1 ? 1 : 0) + p.stream(p.bytes)};
  if (p.kind == ActionKind::Broadcast)
    return {CollectiveAlgorithm::Ring, p.steps(p.n - 1, p.nodes - 1) + p.stream(p.bytes)};
  const double steps = p.rounds() * (p.n - 1);
  const double between = p.group.nodes > 1 ? std::min(p.rounds() * p.nodes, steps) : 0;
  return {CollectiveAlgorithm::Ring, p.steps(steps, between) + p.stream(steps / p.n * p.bytes)};
}

/// A chain inside each node and two binary trees between the nodes, each for half of the bytes
/// (Sanders, Speck, Träff 2009; as NCCL's): up and down for an all-reduce, down for a broadcast.
Way tree(const Pricing& p) {
  const double depth = std::bit_width(static_cast<unsigned>(p.group.nodes - 1));
  const double between = p.rounds() * depth;
  const double chain = p.rounds() * (p.group.most_on_node - 1);
  return {CollectiveAlgorithm::Tree,
          p.steps(chain + between, between) + p.stream(p.rounds() * p.bytes)};
}

/// Inside the nodes, then between them for each member's part of its node, then inside again.
Way hierarchical(const Pricing& p) {
  const double each = p.group.most_on_node;
  const double chain = p.rounds() * (each - 1), between = p.rounds() * (p.nodes - 1);
  return {CollectiveAlgorithm::Hierarchical, p.steps(chain + between, between) +
                                                 p.inside(chain / each * p.bytes) +
                                                 p.across(between / p.nodes * p.bytes)};
}

/// Each member sends each other one its part.
Way pairwise(const Pricing& p) {
  const double each = p.group.most_on_node, part = p.bytes / p.n;
  const double inside = p.inside((p.n - 1) * part);
  const double across = p.group.nodes > 1 ? p.across(each * (p.n - each) * part) : 0;
  return {CollectiveAlgorithm::Pairwise, p.steps(p.n - 1, p.n - each) + std::max(inside, across)};
}

Way cheapest(const Pricing& p) {
  if (p.kind == ActionKind::AllToAll) return pairwise(p);
  Way best = ring(p);
  if (p.kind == ActionKind::RingSend) return best;
  const auto offer = [&](const Way& way) {
    if (way.ns < best.ns) best = way;
  };
  // Inside one node a tree is a chain: as many steps as a ring, and more bytes.
  if (p.group.nodes == 1) return best;
  if (p.kind == ActionKind::AllReduce || p.kind == ActionKind::Broadcast) offer(tree(p));
  const bool even = p.group.nodes * p.group.most_on_node == p.group.members;
  if (p.kind != ActionKind::Broadcast && even && p.group.most_on_node > 1) offer(hierarchical(p));
  return best;
}

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::Ring:
      return "ring";
    case CollectiveAlgorithm::Tree:
      return "tree";
    case CollectiveAlgorithm::Hierarchical:
      return "hierarchical";
    case CollectiveAlgorithm::Pairwise:
      return "pairwise";
  }
  throw_bug(__FILE__, __LINE__, "an algorithm has no name");
}

std::string_view to_string(CollectiveProtocol protocol) {
  return protocol == CollectiveProtocol::LowLatency ? "low-latency" : "bulk";
}

CollectivePrice price_of(const CollectiveModel& model, ActionKind kind,
                         const CollectiveGroup& group, std::int64_t bytes) {
  PIPEWRIGHT_ASSERT(is_group_collective(kind), "a price for what is no collective");
  PIPEWRIGHT_ASSERT(group.nodes == 1 || model.across_bytes_per_second > 0,
                    "a price between nodes without a rate between nodes");
  CollectivePrice price;
  if (group.members <= 1) return price;
  const Pricing pricing{model,
                        kind,
                        group,
                        static_cast<double>(group.members),
                        static_cast<double>(group.nodes),
                        static_cast<double>(bytes)};
  const Way way = cheapest(pricing);
  // A member's part; all that it sends round.
  const double part = kind == ActionKind::RingSend ? pricing.bytes : pricing.bytes / pricing.n;
  const double growing = model.part_ns_per_byte * part;
  price.algorithm = way.algorithm;
  price.protocol =
      growing <= model.bulk_ns ? CollectiveProtocol::LowLatency : CollectiveProtocol::Bulk;
  const double ns = model.launch_ns + std::min(growing, model.bulk_ns) + way.ns;
  // Rounded up, but for the last bit of an exact sum; no longer than a file may say.
  price.time = Nanoseconds(static_cast<std::int64_t>(
      std::ceil(std::min(ns, static_cast<double>(kMostNanoseconds)) - 1e-6)));
  return price;
}

bool is_proven(ActionKind kind, const CollectiveGroup& group) {
  return kind == ActionKind::AllReduce && group.nodes == 1;
}

ActionKind library_kind(const Collective& collective) {
  if (is_group_collective(collective.kind)) return collective.kind;
  if (collective.kind == ActionKind::Unshard) return ActionKind::AllGather;
  return collective.sharded ? ActionKind::ReduceScatter : ActionKind::AllReduce;
}

Nanoseconds priced_time(const CollectivePrices& prices, const Collective& collective,
                        std::int64_t bytes) {
  std::map<int, int> on_node;
  CollectiveGroup group;
  group.members = static_cast<int>(collective.size());
  for (const Collective::Member& member : collective.members) {
    const auto rank = static_cast<std::size_t>(member.rank.value);
    PIPEWRIGHT_ASSERT(rank < prices.device_of_rank.size(), "a rank of a collective has no device");
    for (int d = 0; d < collective.devices; ++d) {
      const int device = prices.device_of_rank[rank] + d * collective.stride;
      group.most_on_node =
          std::max(group.most_on_node, ++on_node[device / prices.devices_per_node]);
    }
  }
  group.nodes = static_cast<int>(on_node.size());
  return price_of(prices.model, library_kind(collective), group, bytes).time;
}

}  // namespace pipewright
