#include "planner/branch.hpp"

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "planner/closed_form.hpp"

namespace pipewright::planner {

std::vector<int> kinds_of_stages(const LayerCosts& costs, const Placement& placement) {
  std::vector<int> kinds;
  for (int s = 0; s < placement.stages(); ++s) {
    const RankId rank = placement.rank_of(StageId(s), MicroBatchId(0));
    kinds.push_back(costs.kind(static_cast<int>(rank.value)));
  }
  return kinds;
}

bool mixes_speeds(Layout layout, const LayerCosts& costs) {
  const bool on_several = layout == Layout::Bidirectional || layout == Layout::Replicas;
  const std::vector<int>& kinds = costs.kind_of_rank;
  return on_several &&
         std::any_of(kinds.begin(), kinds.end(), [&](int kind) { return kind != kinds.front(); });
}

std::vector<StagePlan> plan_stages(const Partition& partition, const Placement& placement) {
  std::vector<StagePlan> stages;
  for (int s = 0; s < placement.stages(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    stages.push_back({partition.first_layer[i], partition.first_layer[i + 1],
                      placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  return stages;
}

namespace {

constexpr double kMostActions = 2e7;  // of one configuration
constexpr const char* kTooLarge = "too large to simulate";
constexpr const char* kMixedSpeeds = "stages on several ranks, which differ in speed";
constexpr const char* kSameCut = "same stages by cost and by number of layers";

/// What shapes with the same stages on the same ranks share.
struct Cut {
  std::shared_ptr<const std::vector<StagePlan>> stages;
  std::vector<StageCosts> costs;
  std::vector<StageMemory> memory;
};

/// The cuts of one mesh, made when they are first asked for.
class Cuts {
 public:
  Cuts(const ConfigurationCosts& costs, const ParallelSetup& mesh)
      : costs_(costs), layer_costs_(costs.layer_costs(mesh)) {}

  const LayerCosts& layer_costs() const { return layer_costs_; }

  /// Null for equal numbers of layers where that is the cut by cost.
  const Cut* of(const Configuration& configuration, const Placement& placement) {
    const Layout layout = configuration.schedule->layout;
    const bool by_layout = layout == Layout::Loop || layout == Layout::V;
    const auto [entry, is_new] = cuts_.try_emplace(
        std::tuple(placement.stages(), layout, by_layout ? nullptr : configuration.schedule,
                   configuration.even_layers));
    if (is_new) entry->second = make(configuration, placement);
    return entry->second ? &*entry->second : nullptr;
  }

 private:
  std::optional<Cut> make(const Configuration& configuration, const Placement& placement) {
    const std::vector<int> kinds = kinds_of_stages(layer_costs_, placement);
    const auto [entry, is_new] = balanced_.try_emplace(kinds);
    if (is_new) entry->second = balanced_partition(layer_costs_.of_kind, kinds);
    const auto even = even_partition(layer_costs_.of_kind.front(), placement.stages());
    PIPEWRIGHT_ASSERT(entry->second && even, "the search space holds more stages than layers");
    if (configuration.even_layers && entry->second->first_layer == even->first_layer)
      return std::nullopt;
    Cut cut;
    cut.stages = std::make_shared<const std::vector<StagePlan>>(
        plan_stages(configuration.even_layers ? *even : *entry->second, placement));
    cut.costs = costs_.stage_costs(configuration.parallel, *cut.stages);
    cut.memory = costs_.stage_memory(configuration.parallel, *cut.stages);
    return cut;
  }

  const ConfigurationCosts& costs_;
  LayerCosts layer_costs_;
  std::map<std::vector<int>, std::optional<Partition>> balanced_;  // by kinds_of_stages()
  std::map<std::tuple<int, Layout, const Schedule*, bool>, std::optional<Cut>> cuts_;
};

std::int64_t work_of(const StageCosts& stage, bool splits_backward) {
  // Some orders hold both forms.
  const Nanoseconds backward = splits_backward ? std::min(stage.b, stage.i + stage.w) : stage.b;
  return (stage.f + backward).value;
}

}  // namespace

std::int64_t step_bound(const Configuration& c, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs) {
  const bool splits = c.schedule->splits_backward;
  const int ranks = c.parallel.pipeline, micro_batches = c.parallel.micro_batches;
  if (c.schedule->layout == Layout::Bidirectional || c.schedule->layout == Layout::Replicas) {
    std::int64_t work = 0;
    for (const StageCosts& stage : costs) work += work_of(stage, true) * micro_batches;
    return work / ranks;
  }
  struct Rank {
    std::int64_t work = 0, update = 0;
    std::int64_t fill = -1, drain = 0;  // of the stages in front of its first
  };
  std::vector<Rank> of_rank(static_cast<std::size_t>(ranks));
  std::int64_t fill = 0, drain = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Rank& rank = of_rank[static_cast<std::size_t>(stages[s].rank.value)];
    if (rank.fill < 0) {
      rank.fill = fill;
      rank.drain = drain;
    }
    rank.work += work_of(costs[s], splits) * micro_batches;
    rank.update += costs[s].opt.value;
    fill += costs[s].f.value;
    drain += costs[s].b.value;
  }
  std::int64_t bound = 0;
  for (const Rank& rank : of_rank) {
    const std::int64_t after = splits ? rank.update : std::max(rank.update, rank.drain);
    bound = std::max(bound, rank.fill + rank.work + after);
  }
  return bound;
}

bool may_fit(const Configuration& c, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits) {
  const Layout layout = c.schedule->layout;
  if (limits.all.value <= 0 || layout == Layout::Bidirectional || layout == Layout::Replicas)
    return true;
  const auto peaks = closed_form_peaks(
      c.schedule->name, {c.parallel.pipeline, c.parallel.micro_batches, c.parallel.chunks, {}});
  struct Rank {
    Bytes state, lightest = Bytes(INT64_MAX);
  };
  std::vector<Rank> of_rank(static_cast<std::size_t>(c.parallel.pipeline));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Rank& rank = of_rank[static_cast<std::size_t>(stages[s].rank.value)];
    rank.state += memory[s].constant;
    // Behind its I a micro-batch may hold less.
    const Bytes held = c.schedule->splits_backward
                           ? std::min(memory[s].f, Bytes(-memory[s].w.value))
                           : memory[s].f;
    rank.lightest = std::min(rank.lightest, held);
  }
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const Bytes active = peaks ? of_rank[r].lightest * (*peaks)[r] : Bytes(0);
    if (of_rank[r].state + active > limits.of(static_cast<int>(r))) return false;
  }
  return true;
}

Branches branches_of(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                     const std::vector<Shape>& shapes, Bytes limit) {
  Branches branches;
  const RankLimits limits = limits_of(costs, mesh, limit);
  if (!may_hold(limits, mesh.pipeline, costs.least_memory(mesh))) {
    branches.pruned[kOverMemory] += 2 * static_cast<int>(shapes.size());
    return branches;
  }
  Cuts cuts(costs, mesh);
  for (const Shape& shape : shapes) {
    if (mixes_speeds(shape.schedule->layout, cuts.layer_costs())) {
      branches.pruned[kMixedSpeeds] += 2;
      continue;
    }
    for (const bool even : {false, true}) {
      Branch branch;
      branch.configuration = {shape.schedule, mesh, even};
      branch.configuration.parallel.chunks = shape.chunks;
      const Cut* cut = cuts.of(branch.configuration, shape.placement);
      if (cut == nullptr) {
        ++branches.pruned[kSameCut];
        continue;
      }
      const double actions =
          3.0 * shape.placement.stages() * mesh.micro_batches * costs.simulated_replicas(mesh);
      if (actions > kMostActions) {
        ++branches.pruned[kTooLarge];
      } else if (!may_fit(branch.configuration, *cut->stages, cut->memory, limits)) {
        ++branches.pruned[kOverMemory];
      } else {
        branch.stages = cut->stages;
        branch.bound = step_bound(branch.configuration, *cut->stages, cut->costs);
        branches.open.push_back(std::move(branch));
      }
    }
  }
  return branches;
}

}  // namespace pipewright::planner
