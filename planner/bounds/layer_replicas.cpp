#include "planner/bounds/layer_replicas.hpp"

#include <algorithm>
#include <numeric>

#include "core/cluster/collectives.hpp"
#include "core/model/tie.hpp"

namespace pipewright::planner {
namespace {

/// Ports of single devices are a replica's own, shared or not; what lies between them is not, and
/// where it shares max-min, collectives do.
bool have_own_ports(const Cluster& cluster) {
  if (cluster.inside.sharing == Sharing::MaxMin || cluster.across.sharing == Sharing::MaxMin)
    return false;
  return cluster.nodes == 1 || (cluster.kinds.empty() && cluster.network_ports == 0);
}

/// The ring of a rank's replicas as its worst edges have it. How two neighbours lie in their nodes
/// repeats after as many replicas as a node has devices.
RouteCosts worst_edge(const CostModel& costs, const Job& job, const ParallelSetup& mesh, int rank) {
  const auto edge = [&](int from, int to) {
    return costs.route(from * mesh.pipeline + rank, to * mesh.pipeline + rank);
  };
  const int replicas = mesh.program_replicas();
  RouteCosts worst = edge(replicas - 1, 0);
  const int kinds = std::min(replicas - 1, job.cluster.devices_per_node);
  for (int d = 0; d < kinds; ++d) {
    const RouteCosts way = edge(d, d + 1);
    worst.latency = std::max(worst.latency, way.latency);
    if (way.bytes_per_second <= 0) continue;
    worst.bytes_per_second = worst.bytes_per_second > 0
                                 ? std::min(worst.bytes_per_second, way.bytes_per_second)
                                 : way.bytes_per_second;
  }
  return worst;
}

/// The reduction of a stage as CostTable prices it, in a table with this stage alone.
Nanoseconds ring_time(const RouteCosts& edge, int members, bool sharded, Bytes parameters) {
  Collective ring;
  ring.sharded = sharded;
  for (int m = 0; m < members; ++m) ring.members.push_back({RankId(m)});
  CostTable table;
  table.every_route = edge;
  table.parameter_bytes = {parameters};
  return table.collective_time(ring, members);
}

}  // namespace

std::optional<Nanoseconds> priced_reduction(const Job& job, const ParallelSetup& mesh, int rank,
                                            Bytes parameters) {
  if (!job.cluster.collectives) return std::nullopt;
  CollectivePrices prices{collectives_on(job.cluster), {}, job.cluster.devices_per_node};
  Collective replicas;
  replicas.sharded = job.strategy.sharding_degree > 1;
  for (int d = 0; d < mesh.program_replicas(); ++d) {
    replicas.members.push_back({RankId(d)});
    prices.device_of_rank.push_back((d * mesh.pipeline + rank) * mesh.tensor);
  }
  return priced_time(prices, replicas, parameters.value);
}

int replicas_that_differ(const Cluster& cluster, const ParallelSetup& mesh) {
  if (cluster.nodes == 1) return 1;
  if (!cluster.kinds.empty()) return mesh.program_replicas();
  const int per_node = cluster.devices_per_node, devices = mesh.pipeline * mesh.tensor;
  // A replica that stays inside a node is as any other one that does.
  const int different = per_node % devices == 0 ? 1 : per_node / std::gcd(per_node, devices);
  return std::min(mesh.program_replicas(), different);
}

int replicas_to_simulate(const Job& job, const ParallelSetup& mesh,
                         const CommonOfSchedules& common) {
  const bool in_groups = mesh.zero > 0 && job.strategy.sharding_degree < mesh.data;
  const bool are_alike = !in_groups && common.one_rank_a_stage &&
                         job.training.clip_grad_norm == 0 && !tie_of(job.model) &&
                         !shares_this_machine(job.cluster) && have_own_ports(job.cluster);
  if (!are_alike) return mesh.program_replicas();
  return std::min(mesh.program_replicas(), std::max(2, replicas_that_differ(job.cluster, mesh)));
}

StateShards shards_of(const Job& job, const ParallelSetup& mesh) {
  const int degree = job.strategy.sharding_degree, of_each = mesh.context * mesh.holders;
  const bool divide = degree > 1;
  return {divide ? std::max(1, mesh.zero) : 0, divide ? degree * of_each : 1, mesh.data * of_each};
}

CostTable table_of_some(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                        std::span<const StagePlan> stages, int replicas) {
  const StateShards shards = shards_of(job, mesh);
  CostTable table = costs.table(stages, mesh.pipeline * replicas, mesh.micro_batch_size,
                                job.training.optimizer, shards);
  if (replicas == mesh.program_replicas()) return table;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const int rank = static_cast<int>(stages[s].rank.value);
    const auto priced = priced_reduction(job, mesh, rank, table.parameter_bytes[s]);
    const Nanoseconds time =
        priced ? *priced
               : ring_time(worst_edge(costs, job, mesh, rank), mesh.program_replicas(),
                           shards.count > 1, table.parameter_bytes[s]);
    table.stages[s].reduce = time;
    if (shards.count > 1) table.stages[s].unshard = time;
  }
  table.parameter_bytes.clear();  // all that they cost is in these times
  return table;
}

}  // namespace pipewright::planner
