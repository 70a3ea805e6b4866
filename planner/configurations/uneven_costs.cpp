// The costs of a job with slow devices or samples of unequal length: those of the same job whose
// devices and samples are alike, and what changes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "planner/base/number_text.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/configurations/uneven_work.hpp"

namespace pipewright::planner {
namespace {

constexpr ActionKind kTimedKinds[] = {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B};

/// The stage's rank in a list by rank.
double at_rank(const std::vector<double>& by_rank, const StagePlan& stage) {
  return by_rank[static_cast<std::size_t>(stage.rank.value)];
}

/// A stage whose computations take so many times as long; what is told inside takes what it took.
StageCosts longer_stage(const StageCosts& whole, const StageCosts& computations, double factor) {
  StageCosts longer = whole;
  const StageCosts stretched_ones = stretched(computations, factor);
  for (const ActionKind kind : kTimedKinds) {
    const auto time = time_of(kind);
    longer.*time = whole.*time + (stretched_ones.*time - computations.*time);
  }
  return longer;
}

class UnevenConfigurations final : public ConfigurationCosts {
 public:
  UnevenConfigurations(const Job& job, std::unique_ptr<ConfigurationCosts> alike)
      : alike_(std::move(alike)), work_(job, alike_->is_estimated()) {
    if (job.strategy.sharding_degree > 1 && alike_->is_estimated())
      throw InputError(
          "strategy.sharding_degree: replicas that form groups are not looked at where devices or "
          "samples are not alike; leave it out, or cluster.slow and sample_scales");
    for (const SlowPlace& place : job.cluster.slow)
      remark_ += (remark_.empty() ? "" : ", ") + std::string(place.is_node ? "node " : "device ") +
                 std::to_string(place.number) + " " + hundredths(place.factor) +
                 " times as long as others";
    if (!remark_.empty()) remark_ = "Computations take on " + remark_ + ".";
    if (job.sample_scales.empty()) return;
    const auto [least, most] = std::ranges::minmax(job.sample_scales);
    shortest_sample_ = least;
    remark_ += std::string(remark_.empty() ? "" : " ") + "Samples take " + hundredths(least) +
               " to " + hundredths(most) +
               " times as long as the model says; memory and messages are as if all were alike.";
  }

  const ConfigurationCosts& alike() const override { return *alike_; }
  void for_each_mesh(const std::vector<int>& pipeline, const SpaceVisitor& visitor) const override {
    alike_->for_each_mesh(pipeline, {[&](const ParallelSetup& mesh) {
                                       if (divides(mesh)) {
                                         visitor.ruled_out(LeftOut::UnevenDivision, mesh);
                                       } else {
                                         visitor.visit(mesh);
                                       }
                                     },
                                     visitor.ruled_out});
  }
  std::optional<Refusal> refusal(const ParallelSetup& mesh) const override {
    if (divides(mesh))
      return Refusal{LeftOut::UnevenDivision,
                     "where a job is planned layer by layer, slow devices and sample_scales are "
                     "looked at with tp, cp and ep 1 alone"};
    return alike_->refusal(mesh);
  }
  std::optional<LeftOut> leaves_out(const Schedule& schedule) const override {
    const bool on_several =
        schedule.layout == Layout::Bidirectional || schedule.layout == Layout::Replicas;
    if (on_several || schedule.traits.overlaps || schedule.traits.asynchronous)
      return LeftOut::UnevenSchedule;
    return std::nullopt;
  }

  std::int64_t least_step(const ParallelSetup& mesh) const override {
    return at_least(alike_->least_step(mesh), shortest_sample_);
  }
  std::int64_t least_overlapped_step(const ParallelSetup& mesh) const override {
    return at_least(alike_->least_overlapped_step(mesh), shortest_sample_);
  }
  std::int64_t least_with_action_times(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                                       std::span<const StageCosts> costs,
                                       std::int64_t least) const override {
    const auto telling = work_.telling(mesh);
    std::int64_t bound = at_least(least, std::ranges::min(telling.front().length));
    for (const UnevenReplica& replica : telling)
      bound = std::max(bound, least_work(mesh, stages, costs, telling.front(), replica));
    return bound;
  }

  LayerCosts layer_costs(const ParallelSetup& mesh) const override {
    const LayerCosts as_alike = alike_->layer_costs(mesh);
    std::vector<double> slowest(static_cast<std::size_t>(mesh.pipeline), 1);
    for (const UnevenReplica& replica : work_.telling(mesh))
      std::ranges::transform(replica.slowness, slowest, slowest.begin(), std::ranges::max);
    LayerCosts costs;
    std::vector<std::pair<int, double>> kinds;
    for (int rank = 0; rank < mesh.pipeline; ++rank) {
      const std::pair kind(as_alike.kind(rank), slowest[static_cast<std::size_t>(rank)]);
      const auto found = std::ranges::find(kinds, kind);
      costs.kind_of_rank.push_back(static_cast<int>(found - kinds.begin()));
      if (found != kinds.end()) continue;
      kinds.push_back(kind);
      costs.of_kind.push_back(as_alike.of_kind[static_cast<std::size_t>(kind.first)]);
      for (std::int64_t& cost : costs.of_kind.back())
        cost = std::llround(static_cast<double>(cost) * kind.second);
    }
    return costs;
  }
  /// Of the replica with most to do, as if its samples were alike.
  std::vector<StageCosts> stage_costs(const ParallelSetup& mesh,
                                      std::span<const StagePlan> stages) const override {
    return slowed(mesh, stages, alike_->stage_costs(mesh, stages));
  }
  std::vector<StageMemory> stage_memory(const ParallelSetup& mesh,
                                        std::span<const StagePlan> stages) const override {
    return alike_->stage_memory(mesh, stages);
  }
  std::vector<Wires> wires(const ParallelSetup& mesh,
                           std::span<const StagePlan> stages) const override {
    return alike_->wires(mesh, stages);
  }
  Sending sending(const Schedule& schedule) const override { return alike_->sending(schedule); }
  CostTable table(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                  int replicas) const override {
    CostTable table = alike_->table(mesh, stages, replicas);
    table.stages = slowed(mesh, stages, std::move(table.stages));
    return table;
  }
  StageParts stage_parts(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                         std::span<const StageCosts> whole) const override {
    return alike_->stage_parts(mesh, stages, whole);
  }
  std::vector<StageCosts> stage_computations(const ParallelSetup& mesh,
                                             std::span<const StagePlan> stages,
                                             std::span<const StageCosts> whole) const override {
    return alike_->stage_computations(mesh, stages, whole);
  }

  bool has_action_times(const ParallelSetup& mesh) const override {
    return work_.has_lengths() || simulated_replicas(mesh) > 1;
  }
  void add_action_times(const ParallelSetup& mesh, std::span<const StagePlan> stages, int replicas,
                        const AlikeStages& as_alike, CostTable& table) const override {
    std::vector<UnevenReplica> of = replicas == mesh.data ? work_.all(mesh) : work_.telling(mesh);
    if (static_cast<int>(of.size()) > replicas) of.resize(static_cast<std::size_t>(replicas));
    std::vector<ActionTime> rows;
    for (std::size_t d = 0; d < of.size(); ++d) {
      for (std::size_t s = 0; s < stages.size(); ++s) {
        for (std::size_t k = 0; k < of[d].length.size(); ++k) {
          const double factor = at_rank(of[d].slowness, stages[s]) * of[d].length[k];
          const StageCosts longer =
              longer_stage(as_alike.whole[s], as_alike.computations[s], factor);
          for (const ActionKind kind : kTimedKinds) {
            const Nanoseconds time = longer.*time_of(kind);
            if (time == table.stages[s].*time_of(kind)) continue;
            const Action action{.kind = kind,
                                .stage = StageId(static_cast<int>(s)),
                                .micro_batch = MicroBatchId(static_cast<int>(k))};
            rows.push_back({.replica = static_cast<int>(d),
                            .rank = stages[s].rank,
                            .action = {action, std::nullopt},
                            .time = time});
          }
        }
      }
    }
    if (rows.empty()) return;
    table.actions = std::make_shared<ActionTimes>(
        std::move(rows), ReplicaShape{replicas, mesh.pipeline, mesh.micro_batches});
  }

  std::vector<LayerRecompute> recompute_kinds() const override { return alike_->recompute_kinds(); }
  bool has_recompute(LayerRecompute recompute) const override {
    return alike_->has_recompute(recompute);
  }
  bool chooses_recompute() const override { return alike_->chooses_recompute(); }
  int simulated_replicas(const ParallelSetup& mesh) const override {
    if (alike_->is_estimated()) return static_cast<int>(work_.telling(mesh).size());
    return std::max(alike_->simulated_replicas(mesh), mesh.data);
  }
  Bytes least_memory(const ParallelSetup& mesh) const override {
    return alike_->least_memory(mesh);
  }
  Bytes memory_limit() const override { return alike_->memory_limit(); }
  bool knows_speeds() const override { return true; }
  std::vector<Bytes> rank_memory(const ParallelSetup& mesh) const override {
    return alike_->rank_memory(mesh);
  }
  bool is_estimated() const override { return alike_->is_estimated(); }
  std::vector<std::string> remarks(const ParallelSetup& mesh) const override {
    std::vector<std::string> remarks = alike_->remarks(mesh);
    remarks.push_back(remark_);
    return remarks;
  }

 private:
  bool divides(const ParallelSetup& mesh) const {
    return !alike_->is_estimated() && mesh.tensor * mesh.context * mesh.experts > 1;
  }

  std::vector<StageCosts> slowed(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                                 std::vector<StageCosts> costs) const {
    const UnevenReplica most = work_.telling(mesh).front();
    if (std::ranges::max(most.slowness) == 1) return costs;
    const std::vector<StageCosts> computations = alike_->stage_computations(mesh, stages, costs);
    for (std::size_t s = 0; s < stages.size(); ++s)
      costs[s] = longer_stage(costs[s], computations[s], at_rank(most.slowness, stages[s]));
    return costs;
  }

  /// If no order beats `least` with micro-batches that are alike, none beats this with those of
  /// which none is shorter than `shortest`.
  static std::int64_t at_least(std::int64_t least, double shortest) {
    return static_cast<std::int64_t>(
        std::floor(static_cast<double>(least) * std::min(1.0, shortest)));
  }

  /// The work of each rank, from when the first micro-batch can have come there on; and once more
  /// without W's, but with the way of the last gradient back from it. `costs` are those of `most`
  /// with micro-batches that are alike. What is told inside an action does not get longer with it,
  /// so lengths count up to their number, and on the way the shortest up to 1.
  static std::int64_t least_work(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                                 std::span<const StageCosts> costs, const UnevenReplica& most,
                                 const UnevenReplica& replica) {
    struct Rank {
      double fill = -1, drain = 0, work = 0, without_weights = 0;
    };
    std::vector<Rank> ranks(static_cast<std::size_t>(mesh.pipeline));
    const double shortest = std::ranges::min(replica.length);
    double fill = 0, drain = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      Rank& rank = ranks[static_cast<std::size_t>(stages[s].rank.value)];
      if (rank.fill < 0) {
        rank.fill = fill;
        rank.drain = drain;
      }
      const double longer =
          at_rank(replica.slowness, stages[s]) / at_rank(most.slowness, stages[s]);
      const double times =
          std::min(replica.total_length() * longer, static_cast<double>(mesh.micro_batches));
      const double forward = static_cast<double>(costs[s].f.value);
      const double input = static_cast<double>(std::min(costs[s].b, costs[s].i).value);
      const double backward =
          static_cast<double>(std::min(costs[s].b, costs[s].i + costs[s].w).value);
      rank.work += (forward + backward) * times;
      rank.without_weights += (forward + input) * times;
      fill += forward * std::min(1.0, shortest * longer);
      drain += input * std::min(1.0, shortest * longer);
    }
    double least = 0;
    for (const Rank& rank : ranks)
      least =
          std::max({least, rank.fill + rank.work, rank.fill + rank.without_weights + rank.drain});
    return static_cast<std::int64_t>(std::floor(least * (1 - 1e-9)));
  }

  std::unique_ptr<ConfigurationCosts> alike_;
  UnevenWork work_;
  double shortest_sample_ = 1;
  std::string remark_;
};

}  // namespace

std::unique_ptr<ConfigurationCosts> uneven_configurations(
    const Job& job, std::unique_ptr<ConfigurationCosts> alike) {
  if (job.cluster.slow.empty() && job.sample_scales.empty()) return alike;
  return std::make_unique<UnevenConfigurations>(job, std::move(alike));
}

}  // namespace pipewright::planner
