#include "exec/transports/nccl/communicators.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "exec/transports/nccl/policy_support.hpp"

namespace pipewright::exec::nccl {
namespace {

// No more than the link can feed, because every kernel that waits for its peer keeps its blocks
// busy, and one communicator serves one direction of one link. NCCL itself takes 16 channels for a
// pair of GPUs on NVLink (shared/reference/hardware.md §2: a pair buffers 64 MiB, which is 16
// channels of 8 x 512 KiB; meta-pytorch/torchrec#4472), so more would not be used. A channel there
// moves 20 to 25 GB/s, the 450 GB/s of an NVLink 4 direction in 18 to 22. Fewer than four are too
// few for a network's port.
constexpr double kBytesPerSecondOfCta = 25e9;
constexpr int kLeastEdgeCtas = 4, kMostEdgeCtas = 16;
// One launch for all of a rank's transfers.
constexpr int kAllRanksCtas = 8;
constexpr int kReplicasCtas = 16;
constexpr std::int64_t kBufferBytes = std::int64_t{4} << 20;  // NCCL_BUFFSIZE where nobody set it

using Use = Communicator::Use;
using Edge = std::pair<RankId, RankId>;  // source, destination

Use use_of_transfers(const CommPolicy& policy) {
  if (policy.issue == Issue::Grouped) return Use::All;
  if (policy.issue == Issue::Inline) return Use::Edge;
  switch (policy.channel) {
    case Channel::Rank:
      return Use::All;
    case Channel::Pair:
      return Use::Pair;
    default:
      return Use::Edge;
  }
}

std::vector<RankId> members_of(const Edge& edge, Use use, const std::vector<RankId>& all) {
  if (use == Use::All) return all;
  if (use == Use::Pair)
    return {std::min(edge.first, edge.second), std::max(edge.first, edge.second)};
  return {edge.first, edge.second};
}

/// Also those that do not call it, though they are in its group.
std::vector<RankId> members_of(const Collective& collective) {
  std::vector<RankId> ranks = collective.missing;
  for (const Collective::Member& member : collective.members) ranks.push_back(member.rank);
  std::ranges::sort(ranks);
  return ranks;
}

/// Its name; "" where it is the replicas' or all ranks'.
std::string group_of(const Program& program, const Collective& collective) {
  const Instruction& first = program.code[collective.members.front().instruction];
  return is_group_collective(first.kind) ? program.call(first).group : "";
}

ActionKind kind_of(const Program& program, const Collective& collective) {
  return program.code[collective.members.front().instruction].kind;
}

std::vector<std::pair<int, int>> all_edges(const Communicator& communicator) {
  const int members = static_cast<int>(communicator.members.size());
  std::vector<std::pair<int, int>> edges;
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      if (from != to) edges.emplace_back(from, to);
    }
  }
  return edges;
}

/// All ranks that send or receive.
std::vector<RankId> ranks_of(const std::vector<Route>& routes) {
  std::vector<RankId> ranks;
  for (const Route& route : routes) {
    ranks.push_back(route.source);
    ranks.push_back(route.destination);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// For the fastest of the links that each communicator serves.
void plan_ctas(const Program& program, const CostTable& costs, CommunicatorPlan& plan) {
  for (std::size_t r = 0; r < program.routes.size(); ++r) {
    const Route& route = program.routes[r];
    const double rate =
        costs.route(route.source, route.destination, program.ranks()).bytes_per_second;
    Communicator& communicator = plan.communicators[plan.of_route[r]];
    communicator.most_ctas = std::max(communicator.most_ctas, ctas_for(rate));
  }
}

void plan_transfers(const Program& program, const CostTable& costs, CommunicatorPlan& plan) {
  const Use use = use_of_transfers(program.policy);
  const std::vector<RankId> all = ranks_of(program.routes);
  std::map<std::vector<RankId>, std::uint32_t> known;  // in order of members
  for (const Route& route : program.routes)
    known[members_of({route.source, route.destination}, use, all)] = 0;
  const int ctas = use == Use::All ? kAllRanksCtas : kLeastEdgeCtas;
  for (auto& [members, index] : known) {
    index = static_cast<std::uint32_t>(plan.communicators.size());
    plan.communicators.push_back({use, members, ctas});
  }
  for (const Route& route : program.routes)
    plan.of_route.push_back(known.at(members_of({route.source, route.destination}, use, all)));
  plan_ctas(program, costs, plan);
}

/// Stages whose actions exchange rows, and whether ranks of other places along cp do so, too.
std::map<StageId, bool> stages_with_experts(const Program& program) {
  std::map<StageId, bool> stages;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.code[id].kind != ActionKind::AllToAll) continue;
    const Action* const owner = program.action_of_part(id);
    if (owner == nullptr) continue;
    const std::string& group = program.call(program.code[id]).group;
    const std::string axes = "+" + group + "+";
    stages[owner->stage] |= axes.find("+" + std::string(kContextAxis) + "+") != std::string::npos;
  }
  return stages;
}

/// The replicas of each place that hold the same experts; none where the stage has no experts.
std::map<int, std::vector<RankId>> replicas_by_experts(const Program& program,
                                                       const Collective& collective,
                                                       const std::map<StageId, bool>& stages) {
  const auto stage = stages.find(collective.stage);
  if (collective.kind != ActionKind::ReduceGrad || stage == stages.end()) return {};
  std::map<int, std::vector<RankId>> replicas;
  for (const Collective::Member& member : collective.members)
    replicas[place_of_experts(program.devices, member.rank, stage->second)].push_back(member.rank);
  return replicas;
}

void plan_collectives(const Program& program, CommunicatorPlan& plan) {
  using Key = std::pair<std::string, std::vector<RankId>>;
  const auto key_of = [&](const Collective& one) {
    return Key(group_of(program, one), members_of(one));
  };
  std::map<Key, std::uint32_t> known;
  const auto stages = stages_with_experts(program);
  std::vector<std::map<int, std::vector<RankId>>> replicas;
  for (const Collective& collective : program.collectives) {
    known[key_of(collective)] = 0;
    replicas.push_back(replicas_by_experts(program, collective, stages));
    // exec/transports/nccl/by_hosts.hpp has these.
    if (collective.sharded || replicas.back().size() < 2) replicas.back().clear();
    for (const auto& [place, ranks] : replicas.back()) {
      if (ranks.size() > 1) known[Key("", ranks)] = 0;
    }
  }
  for (auto& [key, index] : known) {
    const auto& [group, members] = key;
    index = static_cast<std::uint32_t>(plan.communicators.size());
    const Use use = group.empty() ? Use::Replicas : Use::Group;
    plan.communicators.push_back({use, members, kReplicasCtas, group});
  }
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    const std::vector<RankId> members = members_of(program.collectives[c]);
    plan.of_collective.push_back(known.at(key_of(program.collectives[c])));
    auto& of_experts = plan.of_experts.emplace_back();
    if (!replicas[c].empty()) of_experts.assign(members.size(), kNoCommunicator);
    for (const auto& [place, ranks] : replicas[c]) {
      for (const RankId rank : ranks) {
        const auto member = std::ranges::lower_bound(members, rank) - members.begin();
        if (ranks.size() > 1)
          of_experts[static_cast<std::size_t>(member)] = known.at(Key("", ranks));
      }
    }
  }
}

/// From each member to the next one.
void add_ring(const Communicator& communicator, std::vector<std::pair<int, int>>& edges) {
  const auto members = static_cast<int>(communicator.members.size());
  for (int m = 0; m < members; ++m) edges.emplace_back(m, (m + 1) % members);
}

void plan_warm_ups(const Program& program, CommunicatorPlan& plan) {
  std::vector<std::vector<std::pair<int, int>>> edges(plan.communicators.size());
  if (program.policy.connect == Connect::Ready) {
    for (std::size_t r = 0; r < program.routes.size(); ++r) {
      const Communicator& communicator = plan.communicators[plan.of_route[r]];
      edges[plan.of_route[r]].emplace_back(communicator.index_of(program.routes[r].source),
                                           communicator.index_of(program.routes[r].destination));
    }
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
      const std::uint32_t c = plan.of_collective[i];
      if (program.collectives[i].kind == ActionKind::RingSend)
        add_ring(plan.communicators[c], edges[c]);
    }
  }
  // Exchanges of rows are sends and receives between all members.
  std::vector<bool> has_sums(plan.communicators.size(), false);
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    const std::uint32_t c = plan.of_collective[i];
    const bool exchanges = kind_of(program, program.collectives[i]) == ActionKind::AllToAll;
    if (!exchanges) has_sums[c] = true;
    if (exchanges && edges[c].empty()) edges[c] = all_edges(plan.communicators[c]);
    for (const std::uint32_t holders : plan.of_experts[i]) {
      if (holders != kNoCommunicator) has_sums[holders] = true;
    }
  }
  for (std::uint32_t c = 0; c < plan.communicators.size(); ++c) {
    std::sort(edges[c].begin(), edges[c].end());
    edges[c].erase(std::unique(edges[c].begin(), edges[c].end()), edges[c].end());
    if (has_sums[c]) plan.warm_ups.push_back({c, {}});
    if (!edges[c].empty()) plan.warm_ups.push_back({c, std::move(edges[c])});
  }
}

/// Peers of the member over which it sends or receives. `has_edges`: of a group, each to each, too.
int connections_of(const Communicator& communicator, bool has_edges) {
  const int others = static_cast<int>(communicator.members.size()) - 1;
  switch (communicator.use) {
    case Use::Edge:
      return 1;
    case Use::Pair:
      return 2;
    case Use::All:
      return 2 * std::min(others, 2);  // neighbours along the pipeline, both directions
    case Use::Replicas:
    case Use::Group:
      return 2 * std::min(others, 2) + (has_edges ? 2 * others : 0);  // a ring
  }
  return 1;
}

}  // namespace

int Communicator::index_of(RankId rank) const {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::vector<std::uint32_t> CommunicatorPlan::joined_by(RankId rank) const {
  std::vector<std::uint32_t> joined;
  for (std::uint32_t c = 0; c < communicators.size(); ++c) {
    if (communicators[c].index_of(rank) >= 0) joined.push_back(c);
  }
  return joined;
}

bool replicas_hold_other_experts(const Program& program, const Collective& collective) {
  return replicas_by_experts(program, collective, stages_with_experts(program)).size() > 1;
}

int ctas_for(double bytes_per_second) {
  const double ctas = std::ceil(bytes_per_second / kBytesPerSecondOfCta);
  return static_cast<int>(std::clamp(ctas, double{kLeastEdgeCtas}, double{kMostEdgeCtas}));
}

CommunicatorPlan communicators_of(const Program& program, const CostTable& costs) {
  const std::vector<std::string> refusals = refusals_of(program);
  if (!refusals.empty()) throw InputError(refusals.front());
  CommunicatorPlan plan;
  plan_transfers(program, costs, plan);
  plan_collectives(program, plan);
  plan_warm_ups(program, plan);
  return plan;
}

std::string name_of(const Communicator& communicator) {
  std::string ranks;
  const char* between = communicator.use == Use::Edge ? " to " : " ";
  for (const RankId rank : communicator.members)
    ranks += (ranks.empty() ? "" : between) + std::to_string(rank.value);
  switch (communicator.use) {
    case Use::Edge:
      return "edge " + ranks;
    case Use::Pair:
      return "pair " + ranks;
    case Use::All:
      return "all ranks";
    case Use::Replicas:
      return "replicas " + ranks;
    case Use::Group:
      return "group " + communicator.group + " " + ranks;
  }
  return ranks;
}

DeviceShare share_of(const CommunicatorPlan& plan, RankId rank) {
  DeviceShare share;
  for (const std::uint32_t c : plan.joined_by(rank)) {
    const Communicator& communicator = plan.communicators[c];
    const bool has_edges =
        std::any_of(plan.warm_ups.begin(), plan.warm_ups.end(),
                    [c](const WarmUp& one) { return one.communicator == c && !one.edges.empty(); });
    ++share.communicators;
    share.ctas += communicator.most_ctas;
    share.buffers +=
        Bytes(kBufferBytes * communicator.most_ctas * connections_of(communicator, has_edges));
  }
  return share;
}

}  // namespace pipewright::exec::nccl
