#include "planner/bounds/layer_bounds.hpp"

#include <algorithm>
#include <cmath>

#include "planner/bounds/layer_replicas.hpp"
#include "planner/memory/memory.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {
namespace {

/// Half of what an all-reduce takes: the gradients' reduction, or the gathering of what replicas
/// have updated in parts. `bytes` 0: the latencies alone.
double half_ring_ns(const RouteCosts& edge, int members, double bytes) {
  const double steps = members - 1;
  const double moving =
      edge.bytes_per_second > 0 ? steps / members * bytes / edge.bytes_per_second * 1e9 : 0;
  return steps * static_cast<double>(edge.latency.value) + moving;
}

/// Rank r of replica d sits on device d * P + r. The edge that closes the ring is its longest.
RouteCosts closing_edge(const CostModel& costs, const ParallelSetup& mesh, int rank) {
  return costs.route((mesh.program_replicas() - 1) * mesh.pipeline + rank, rank);
}

/// What sums of gradients move, of one of the devices that divide the stage, or its experts.
Bytes parameters_of(const Job& job, const ParallelSetup& mesh, const StagePlan& stage) {
  return state_of(job.model, stage, job.training.optimizer, mesh.division()).gradients;
}

/// Half of what an all-reduce of a rank's replicas takes, or the whole of what stands for it where
/// they are sharded.
double least_half_ns(const CostModel& costs, const Job& job, const ParallelSetup& mesh, int rank,
                     Bytes parameters) {
  if (const auto priced = priced_reduction(job, mesh, rank, parameters))
    return static_cast<double>(priced->value) / (job.strategy.sharding_degree > 1 ? 1 : 2);
  return half_ring_ns(closing_edge(costs, mesh, rank), mesh.program_replicas(),
                      static_cast<double>(parameters.value));
}

/// Whether sums and gatherings may hide behind computations, or are of groups: then nothing is said
/// of them.
bool exchanges_inside(const Job& job, const ParallelSetup& mesh) {
  return mesh.zero > 1 || (mesh.zero == 1 && job.strategy.sharding_degree < mesh.data);
}

/// What reducing takes at least on a rank, its OPT and its gathering aside.
double least_reduction(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                       const CommonOfSchedules& common, const StagePlan& whole) {
  if (mesh.program_replicas() == 1 || !common.synchronous || exchanges_inside(job, mesh)) return 0;
  const bool is_whole = mesh.pipeline == 1 && !common.any_named;
  const Bytes parameters = is_whole ? parameters_of(job, mesh, whole) : Bytes(0);
  double least = -1;
  for (int rank = 0; rank < mesh.pipeline; ++rank) {
    const double ring = 2 * least_half_ns(costs, job, mesh, rank, parameters);
    if (least < 0 || ring < least) least = ring;
  }
  return least;
}

/// Rounded down: a link that is shared moves bytes in pieces, each rounded by itself.
Wire wire_of(const RouteCosts& way, Bytes size, const Cluster& cluster) {
  const bool is_shared = cluster.kinds.empty() && cluster.inside.sharing != Sharing::None &&
                         cluster.across.sharing != Sharing::None;
  const double moving =
      way.bytes_per_second > 0 ? static_cast<double>(size.value) / way.bytes_per_second * 1e9 : 0;
  const auto least = static_cast<std::int64_t>(moving);
  return {way.latency.value + least, is_shared ? least : 0};
}

/// By how much I and W of all layers may be less than B, and B less than I, each layer in the
/// better form: measured times say nothing about either.
struct BetterForms {
  double work = 0, way = 0;
};
BetterForms better_forms(const CostModel& costs, int micro_batch_size) {
  BetterForms less;
  for (const LayerTimes& layer : costs.layer_times(micro_batch_size)) {
    less.work += static_cast<double>(std::max<std::int64_t>(0, -layer.saved_by_b.value));
    less.way += static_cast<double>(std::max<std::int64_t>(0, (layer.i - layer.b()).value));
  }
  return less;
}

}  // namespace

CommonOfSchedules common_of(const Choice& schedule_mode) {
  CommonOfSchedules common;
  common.any_named = !schedule_mode.empty();
  for (const std::string& name : schedule_mode) {
    const Schedule& schedule = find_schedule(name);
    common.one_rank_a_stage = common.one_rank_a_stage && schedule.layout != Layout::Replicas &&
                              schedule.layout != Layout::Bidirectional;
    common.whole_ranks = common.whole_ranks && schedule.layout != Layout::Replicas;
    common.synchronous = common.synchronous && !schedule.traits.asynchronous;
  }
  return common;
}

std::int64_t least_layer_step(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                              const CommonOfSchedules& common) {
  const auto layers = static_cast<int>(job.model.layers.size());
  const StagePlan whole{0, layers, RankId(0)};
  const int ranks = mesh.pipeline * mesh.program_replicas();
  const StageCosts all =
      costs.stage_costs({&whole, 1}, ranks, mesh.micro_batch_size, job.training.optimizer).front();
  const double slower = costs.contention(ranks);
  const BetterForms less = better_forms(costs, mesh.micro_batch_size);
  // Each of a stage's times is rounded to a whole nanosecond, by half of one at most.
  const double rounding = slower > 1 ? 1.5 * (layers + 1) : 0;
  const int stages = common.whole_ranks ? mesh.pipeline : 1;
  const double launching = 2.0 * slower * static_cast<double>(costs.overhead().value);
  const double work = static_cast<double>((all.f + all.b).value) + (stages - 1) * launching -
                      rounding - slower * less.work;
  ParallelSetup shared = mesh;  // by as many ranks as may be
  if (!common.one_rank_a_stage) shared.holders = holders_in(Layout::Bidirectional);
  const double update =
      common.synchronous
          ? static_cast<double>(all.opt.value) / shards_of(job, shared).count - 2.0 * (layers + 1)
          : 0;
  const double of_rank = (mesh.micro_batches * work + update) / mesh.pipeline +
                         least_reduction(costs, job, mesh, common, whole);
  const double way = static_cast<double>((all.f + all.i).value) - rounding - slower * less.way;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(std::max(of_rank, way))));
}

void set_least_reductions(std::vector<StageCosts>& stage_costs, const CostModel& costs,
                          const Job& job, const ParallelSetup& mesh,
                          std::span<const StagePlan> stages) {
  if (mesh.program_replicas() == 1 || exchanges_inside(job, mesh)) return;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double half = least_half_ns(costs, job, mesh, static_cast<int>(stages[s].rank.value),
                                      parameters_of(job, mesh, stages[s]));
    const Nanoseconds time(static_cast<std::int64_t>(half));
    const bool is_sharded = job.strategy.sharding_degree > 1;
    stage_costs[s].reduce = is_sharded ? time : time + time;
    stage_costs[s].unshard = is_sharded ? time : Nanoseconds(0);
  }
}

std::vector<Wires> layer_wires(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                               std::span<const StagePlan> stages) {
  const std::vector<Bytes> bytes = costs.message_bytes(stages, mesh.micro_batch_size);
  std::vector<Wires> replicas(static_cast<std::size_t>(replicas_that_differ(job.cluster, mesh)));
  for (std::size_t d = 0; d < replicas.size(); ++d) {
    const auto wire = [&](std::size_t from, std::size_t to, Bytes size) {
      if (stages[from].rank == stages[to].rank) return Wire{};
      const int first = static_cast<int>(d) * mesh.pipeline;
      const RouteCosts way = costs.route(first + static_cast<int>(stages[from].rank.value),
                                         first + static_cast<int>(stages[to].rank.value));
      return wire_of(way, size, job.cluster);
    };
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
      replicas[d].up.push_back(wire(s, s + 1, bytes[s]));
      replicas[d].down.push_back(wire(s + 1, s, bytes[s]));
    }
  }
  return replicas;
}

}  // namespace pipewright::planner
