#include "planner/branches/branch.hpp"

#include <algorithm>
#include <tuple>

#include "core/base/error.hpp"
#include "planner/bounds/closed_form.hpp"
#include "planner/branches/flow_bound.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/branches/replicated_stages.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/partition/rank_cut.hpp"

namespace pipewright::planner {

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

/// The cut that the configuration asks for; by cost it is `balanced`.
Partition cut_of(const Configuration& configuration, const LayerCosts& layers,
                 const CutShape& shape, const Partition& balanced) {
  const auto stages = static_cast<int>(shape.kind_of_stage.size());
  if (configuration.even_layers) return *even_partition(layers.of_kind.front(), stages);
  if (configuration.rank_evened && !shape.rank_of_stage.empty())
    return rank_evened(balanced, layers, shape);
  return balanced;
}

}  // namespace

std::vector<StagePlan> stages_of(const Configuration& configuration,
                                 const ConfigurationCosts& costs) {
  return stages_of(configuration, costs,
                   placement_of(*configuration.schedule, request_of(configuration.parallel)));
}

std::vector<StagePlan> stages_of(const Configuration& configuration,
                                 const ConfigurationCosts& costs, const Placement& placement) {
  const ParallelSetup& parallel = configuration.parallel;
  const LayerCosts layers = costs.layer_costs(parallel);
  const CutShape shape = cut_shape(layers, placement);
  const auto balanced = parallel.stage_replicas.empty()
                            ? balanced_partition(layers.of_kind, shape.kind_of_stage)
                            : ReplicatedStages(costs, parallel).cut(parallel.stage_replicas);
  return plan_stages(cut_of(configuration, layers, shape, *balanced), placement);
}

namespace {

constexpr double kMostConfigurationActions = 2e7;  // of one configuration

/// What shapes with the same stages on the same ranks share.
struct Cut {
  std::shared_ptr<const std::vector<StagePlan>> stages;
  std::vector<StageCosts> costs;
  std::vector<StageMemory> memory;
  std::vector<Wires> wires;
  /// Where each stage has its own recompute; costs and memory are then the least of any.
  std::optional<StagesByRecompute> by_recompute;
};

/// The cuts of one mesh, made when they are first asked for.
class Cuts {
 public:
  Cuts(const ConfigurationCosts& costs, const ParallelSetup& mesh)
      : costs_(costs), mesh_(mesh), layer_costs_(costs.layer_costs(mesh)) {}

  const LayerCosts& layer_costs() const { return layer_costs_; }

  ReplicatedStages& replicated() {
    if (!replicated_) replicated_.emplace(costs_, mesh_);
    return *replicated_;
  }

  /// Null for a cut that is another one, too.
  const Cut* of(const Configuration& configuration, const Placement& placement) {
    const Layout layout = configuration.schedule->layout;
    const bool by_layout = layout == Layout::Loop || layout == Layout::V;
    const auto [entry, is_new] = cuts_.try_emplace(
        std::tuple(placement.stages(), layout, by_layout ? nullptr : configuration.schedule,
                   configuration.even_layers, configuration.rank_evened,
                   configuration.parallel.stage_replicas));
    if (is_new) entry->second = make(configuration, placement);
    return entry->second ? &*entry->second : nullptr;
  }

 private:
  std::optional<Cut> make(const Configuration& configuration, const Placement& placement) {
    const CutShape shape = cut_shape(layer_costs_, placement);
    const std::optional<Partition>& balanced = balanced_of(configuration, shape);
    PIPEWRIGHT_ASSERT(balanced, "the search space holds more stages than layers");
    const Partition partition = cut_of(configuration, layer_costs_, shape, *balanced);
    const auto is = [&](const Partition& other) {
      return partition.first_layer == other.first_layer;
    };
    if ((configuration.even_layers || configuration.rank_evened) && is(*balanced))
      return std::nullopt;
    if (configuration.rank_evened &&
        is(*even_partition(layer_costs_.of_kind.front(), placement.stages())))
      return std::nullopt;
    Cut cut;
    cut.stages = std::make_shared<const std::vector<StagePlan>>(plan_stages(partition, placement));
    cut.wires = costs_.wires(configuration.parallel, *cut.stages);
    if (configuration.parallel.recompute.by_stage) {
      cut.by_recompute = stages_by_recompute(costs_, configuration.parallel, *cut.stages);
      cut.costs = cut.by_recompute->least_costs(std::vector<std::size_t>(cut.stages->size(), 0));
      cut.memory = cut.by_recompute->least_memory();
      return cut;
    }
    cut.costs = costs_.stage_costs(configuration.parallel, *cut.stages);
    cut.memory = costs_.stage_memory(configuration.parallel, *cut.stages);
    const std::vector<int>& stage_replicas = configuration.parallel.stage_replicas;
    if (!stage_replicas.empty()) replicated().set_rings(stage_replicas, *cut.stages, cut.costs);
    return cut;
  }

  const std::optional<Partition>& balanced_of(const Configuration& configuration,
                                              const CutShape& shape) {
    const std::vector<int>& stage_replicas = configuration.parallel.stage_replicas;
    const auto [entry, is_new] = balanced_.try_emplace({shape, stage_replicas});
    if (is_new) {
      entry->second = stage_replicas.empty()
                          ? balanced_partition(layer_costs_.of_kind, shape.kind_of_stage)
                          : replicated().cut(stage_replicas);
    }
    return entry->second;
  }

  const ConfigurationCosts& costs_;
  const ParallelSetup& mesh_;
  LayerCosts layer_costs_;
  std::optional<ReplicatedStages> replicated_;
  std::map<std::pair<CutShape, std::vector<int>>, std::optional<Partition>> balanced_;
  std::map<std::tuple<int, Layout, const Schedule*, bool, bool, std::vector<int>>,
           std::optional<Cut>>
      cuts_;
};

/// The shape with the best replicas for its number of stages, where it leaves them open.
std::optional<Shape> with_best_replicas(const Shape& shape, Cuts& cuts) {
  if (shape.schedule->layout != Layout::Replicas || !shape.stage_replicas.empty())
    return std::nullopt;
  Shape chosen = shape;
  chosen.stage_replicas = cuts.replicated().best_replicas(shape.placement.stages());
  chosen.placement = first_placement(chosen.stage_replicas);
  return chosen;
}

/// The most live activations of each rank, where a formula knows them.
auto live_activations(const Configuration& c) {
  return closed_form_peaks(c.schedule->name, request_of(c.parallel));
}

/// What a rank's stages hold at least.
struct LeastHeld {
  Bytes state;                        // all the time
  Bytes lightest = Bytes(INT64_MAX);  // of a micro-batch of one of them
  Bytes heaviest;                     // when its F has ended
};

/// By rank, where each stage is on one.
std::vector<LeastHeld> least_held(const Configuration& c, const std::vector<StagePlan>& stages,
                                  const std::vector<StageMemory>& memory) {
  std::vector<LeastHeld> of_rank(static_cast<std::size_t>(c.parallel.pipeline));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    LeastHeld& rank = of_rank[static_cast<std::size_t>(stages[s].rank.value)];
    rank.state += memory[s].constant;
    // After its I a micro-batch may hold less.
    const Bytes held = c.schedule->traits.splits_backward
                           ? std::min(memory[s].f, Bytes(-memory[s].w.value))
                           : memory[s].f;
    rank.lightest = std::min(rank.lightest, held);
    rank.heaviest = std::max(rank.heaviest, memory[s].f);
  }
  return of_rank;
}

/// By rank; true unless no order of the configuration can keep to the limit there.
std::vector<bool> ranks_that_may_fit(const Configuration& c, const std::vector<StagePlan>& stages,
                                     const std::vector<StageMemory>& memory,
                                     const RankLimits& limits) {
  std::vector<bool> fits(static_cast<std::size_t>(c.parallel.pipeline), true);
  const Layout layout = c.schedule->layout;
  if (limits.all.value <= 0 || layout == Layout::Bidirectional) return fits;
  if (layout == Layout::Replicas) return replicated_ranks_that_fit(c.parallel, memory, limits);
  const auto peaks = live_activations(c);
  const std::vector<LeastHeld> of_rank = least_held(c, stages, memory);
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const Bytes active = peaks ? of_rank[r].lightest * (*peaks)[r] : Bytes(0);
    fits[r] =
        of_rank[r].state + std::max(active, of_rank[r].heaviest) <= limits.of(static_cast<int>(r));
  }
  return fits;
}

/// True only if every order of the configuration keeps to the limits: each activation that is live
/// counted as the heaviest, and the most that an action holds besides.
bool surely_fits(const Configuration& c, const std::vector<StagePlan>& stages,
                 const std::vector<StageMemory>& memory, const RankLimits& limits) {
  const Layout layout = c.schedule->layout;
  if (limits.all.value <= 0) return true;
  if (layout == Layout::Bidirectional || layout == Layout::Replicas) return false;
  if (c.schedule->traits.asynchronous) return false;  // older weights are not looked at here
  const auto peaks = live_activations(c);
  if (!peaks) return false;
  struct Rank {
    Bytes state, heaviest, in_action;
  };
  std::vector<Rank> of_rank(static_cast<std::size_t>(c.parallel.pipeline));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Rank& rank = of_rank[static_cast<std::size_t>(stages[s].rank.value)];
    const StageMemory& stage = memory[s];
    rank.state += stage.constant;
    rank.heaviest = std::max({rank.heaviest, stage.f, stage.f + stage.i});
    rank.in_action = std::max({rank.in_action, stage.in_f, stage.in_i, stage.in_w, stage.in_b});
  }
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    const Rank& rank = of_rank[r];
    const Bytes most = rank.state + rank.heaviest * (*peaks)[r] + rank.in_action;
    if (most > limits.of(static_cast<int>(r))) return false;
  }
  return true;
}

}  // namespace

Room room_of(const Configuration& c, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits) {
  const Layout layout = c.schedule->layout;
  if (limits.all.value <= 0 || layout == Layout::Bidirectional || layout == Layout::Replicas)
    return {};
  Room room{{}, memory};
  for (const LeastHeld& rank : least_held(c, stages, memory))
    room.left.push_back(limits.of(static_cast<int>(room.left.size())) - rank.state);
  return room;
}

namespace {

/// bound_of() a schedule in whose pairs messages hide, under the least recompute.
std::int64_t bound_of_computations(const ConfigurationCosts& costs, const Configuration& c,
                                   const Cut& cut, Sending sending, const Room& room) {
  Configuration least = c;
  if (cut.by_recompute) least.parallel.recompute = {.of_all = cut.by_recompute->kinds.front()};
  const auto& whole = cut.by_recompute ? cut.by_recompute->costs.front() : cut.costs;
  return flow_bound(least, *cut.stages,
                    costs.stage_computations(least.parallel, *cut.stages, whole), cut.wires,
                    sending, room, whole);
}

/// With one stage a rank, each stage recomputes at least as much as the closed form of the peaks
/// makes necessary.
std::int64_t bound_by_recompute(const Configuration& c, const Cut& cut, const RankLimits& limits,
                                Sending sending, const Room& room) {
  const StagesByRecompute& by_kind = *cut.by_recompute;
  if (cut.stages->size() != static_cast<std::size_t>(c.parallel.pipeline))
    return flow_bound(c, *cut.stages, cut.costs, cut.wires, sending, room);
  std::vector<std::size_t> least(cut.stages->size(), 0);
  for (std::size_t kind = 0; kind + 1 < by_kind.kinds.size(); ++kind) {
    const auto fits = ranks_that_may_fit(c, *cut.stages, by_kind.memory[kind], limits);
    for (std::size_t s = 0; s < least.size(); ++s) {
      const auto rank = static_cast<std::size_t>((*cut.stages)[s].rank.value);
      if (least[s] == kind && !fits[rank]) ++least[s];
    }
  }
  return flow_bound(c, *cut.stages, by_kind.least_costs(least), cut.wires, sending, room);
}

std::int64_t work_of(const StageCosts& stage, bool splits_backward) {
  // Some orders hold both forms.
  const Nanoseconds backward = splits_backward ? std::min(stage.b, stage.i + stage.w) : stage.b;
  return (stage.f + backward).value;
}

}  // namespace

std::int64_t bound_of(const Configuration& c, const std::vector<StagePlan>& stages,
                      const ConfigurationCosts& costs) {
  return bound_of(c, stages, costs, chosen_stage_costs(costs, c.parallel, stages), {});
}

std::int64_t bound_of(const Configuration& c, const std::vector<StagePlan>& stages,
                      const ConfigurationCosts& costs, std::vector<StageCosts> of_stage,
                      const Room& room) {
  set_ring_times(costs, c.parallel, stages, of_stage);
  const std::vector<StageCosts> on_way = of_stage;
  if (c.schedule->traits.overlaps)
    of_stage = costs.stage_computations(c.parallel, stages, of_stage);
  const std::int64_t bound = flow_bound(c, stages, of_stage, costs.wires(c.parallel, stages),
                                        costs.sending(*c.schedule), room, on_way);
  return costs.least_with_action_times(c.parallel, stages, of_stage, bound);
}

std::int64_t step_bound(const Configuration& c, const std::vector<StagePlan>& stages,
                        const std::vector<StageCosts>& costs) {
  const bool splits = c.schedule->traits.splits_backward;
  const int ranks = c.parallel.pipeline, micro_batches = c.parallel.micro_batches;
  if (c.schedule->layout == Layout::Replicas) return replicated_bound(c.parallel, costs);
  if (c.schedule->layout == Layout::Bidirectional) {
    std::int64_t work = 0;
    for (const StageCosts& stage : costs) work += work_of(stage, true) * micro_batches;
    return work / ranks;
  }
  struct Rank {
    std::int64_t work = 0, update = 0;
    std::int64_t fill = -1, drain = 0;  // of the stages before its first
    std::int64_t exchange = INT64_MAX;  // after the rank's last gradient, at least
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
    rank.exchange = std::min(rank.exchange, (costs[s].reduce + costs[s].unshard).value);
    fill += costs[s].f.value;
    drain += costs[s].b.value;
  }
  // All ranks' work, one after the other, up to the rank's own last backward.
  const std::int64_t in_turn =
      c.schedule->traits.one_at_a_time ? (fill + drain) * micro_batches : 0;
  std::int64_t bound = 0;
  for (const Rank& rank : of_rank) {
    if (rank.fill < 0) continue;
    const std::int64_t update = rank.exchange + rank.update;
    const std::int64_t after = splits ? update : std::max(update, rank.drain);
    bound = std::max({bound, rank.fill + rank.work + after, in_turn - rank.drain + update});
  }
  return bound;
}

bool may_fit(const Configuration& c, const std::vector<StagePlan>& stages,
             const std::vector<StageMemory>& memory, const RankLimits& limits) {
  const auto fits = ranks_that_may_fit(c, stages, memory, limits);
  return std::find(fits.begin(), fits.end(), false) == fits.end();
}

int cuts_tried(const ConfigurationCosts& costs) { return costs.knows_speeds() ? 3 : 2; }

Branches branches_of(const ConfigurationCosts& costs, const ParallelSetup& mesh,
                     const std::vector<Shape>& shapes, Bytes limit) {
  Branches branches;
  const RankLimits limits = limits_of(costs, mesh, limit);
  if (!may_hold(limits, mesh.pipeline, costs.least_memory(mesh))) {
    branches.pruned[LeftOut::OverMemory] +=
        cuts_tried(costs) * static_cast<std::int64_t>(shapes.size());
    return branches;
  }
  Cuts cuts(costs, mesh);
  for (const Shape& open : shapes) {
    if (mixes_speeds(open.schedule->layout, cuts.layer_costs())) {
      branches.pruned[LeftOut::MixedSpeeds] += cuts_tried(costs);
      continue;
    }
    if (const auto why = costs.leaves_out(*open.schedule)) {
      branches.pruned[*why] += cuts_tried(costs);
      continue;
    }
    const auto chosen = with_best_replicas(open, cuts);
    const Shape& shape = chosen ? *chosen : open;
    for (int k = 0; k < cuts_tried(costs); ++k) {
      Branch branch;
      branch.configuration = {shape.schedule, mesh, k == 1, k == 2};
      branch.configuration.parallel.chunks = shape.chunks;
      branch.configuration.parallel.holders = holders_in(shape.schedule->layout);
      branch.configuration.parallel.stage_replicas = shape.stage_replicas;
      if (mesh.recompute.by_stage && shape.schedule->traits.cost_driven) {
        ++branches.pruned[LeftOut::OrderByCosts];
        continue;
      }
      const Cut* cut = cuts.of(branch.configuration, shape.placement);
      if (cut == nullptr) {
        ++branches.pruned[k == 2 ? LeftOut::SameByRank : LeftOut::SameCut];
        continue;
      }
      const double actions =
          3.0 * shape.placement.stages() * mesh.micro_batches * costs.simulated_replicas(mesh);
      if (actions > kMostConfigurationActions) {
        ++branches.pruned[LeftOut::TooLarge];
      } else if (!may_fit(branch.configuration, *cut->stages, cut->memory, limits)) {
        ++branches.pruned[LeftOut::OverMemory];
      } else if (cut->by_recompute && costs.has_recompute(LayerRecompute::None) &&
                 surely_fits(branch.configuration, *cut->stages, cut->by_recompute->memory.front(),
                             limits)) {
        ++branches.pruned[LeftOut::AlikeRecompute];
      } else {
        branch.stages = cut->stages;
        const Sending sending = costs.sending(*shape.schedule);
        const Room room = room_of(branch.configuration, *cut->stages, cut->memory, limits);
        branch.bound = shape.schedule->traits.overlaps
                           ? bound_of_computations(costs, branch.configuration, *cut, sending, room)
                       : cut->by_recompute
                           ? bound_by_recompute(branch.configuration, *cut, limits, sending, room)
                           : flow_bound(branch.configuration, *cut->stages, cut->costs, cut->wires,
                                        sending, room);
        branch.bound = costs.least_with_action_times(mesh, *cut->stages, cut->costs, branch.bound);
        branches.open.push_back(std::move(branch));
      }
    }
  }
  return branches;
}

}  // namespace pipewright::planner
