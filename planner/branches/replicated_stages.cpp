#include "planner/branches/replicated_stages.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "planner/configurations/stage_replicas.hpp"

namespace pipewright::planner {
namespace {

/// Each layer as a stage of its own. A rank's first stage includes what a rank has once, so one
/// more stage, which nobody reads, comes before them.
std::vector<StagePlan> single_layers(int layers) {
  std::vector<StagePlan> stages{{0, 1, RankId(0)}};
  for (int l = 0; l < layers; ++l) stages.push_back({l, l + 1, RankId(0)});
  return stages;
}

}  // namespace

ReplicatedStages::ReplicatedStages(const ConfigurationCosts& costs, const ParallelSetup& mesh)
    : ranks_(mesh.pipeline), micro_batches_(mesh.micro_batches) {
  const LayerCosts of_layers = costs.layer_costs(mesh);
  work_ = of_layers.of_kind.front();
  layers_ = static_cast<int>(work_.size());
  ParallelSetup setup = mesh;
  setup.stage_replicas = {ranks_};  // then parameters have a price
  setup.recompute.of_stage.clear();
  routes_ = costs.table(setup, single_layers(layers_), 1);
  for (std::size_t l = 0; l < work_.size(); ++l) {
    work_[l] += routes_.stages[l + 1].opt.value;
    parameters_.push_back(routes_.parameter_bytes.empty() ? Bytes(0)
                                                          : routes_.parameter_bytes[l + 1]);
  }
  routes_.stages.clear();
  routes_.parameter_bytes = {Bytes(0)};
}

Nanoseconds ReplicatedStages::ring(int first_rank, int replicas, Bytes parameters) {
  if (replicas == 1) return {};
  Collective members;
  members.stage = StageId(0);
  for (int r = 0; r < replicas; ++r) members.members.push_back({RankId(first_rank + r)});
  routes_.parameter_bytes.front() = parameters;
  return routes_.collective_time(members, ranks_);
}

Nanoseconds ReplicatedStages::messages(int from, int to, int layer) const {
  if (from < 0 || to >= ranks_) return {};
  const auto of = [&](const std::vector<Bytes>& sizes) {
    const auto at = static_cast<std::size_t>(layer) + 1;  // past the extra first stage
    return at < sizes.size() ? static_cast<double>(sizes[at].value) : 0;
  };
  const RouteCosts& way = routes_.route(RankId(from), RankId(to), ranks_);
  const double bytes = of(routes_.activation_bytes) + of(routes_.gradient_bytes);
  const double moving = way.bytes_per_second > 0 ? bytes / way.bytes_per_second * 1e9 : 0;
  return way.latency * 2 + Nanoseconds(std::llround(moving));
}

const ReplicatedStages::Load& ReplicatedStages::load_on(int first_rank, int replicas) {
  const auto [entry, is_new] = loads_.try_emplace({first_rank, replicas});
  Load& load = entry->second;
  if (!is_new) return load;
  const std::int64_t rounds = micro_batches_ / replicas;
  const Nanoseconds latencies = ring(first_rank, replicas, Bytes(0));
  load.fixed = rounds * latencies.value;
  load.sums.assign(1, 0);
  for (std::size_t l = 0; l < work_.size(); ++l) {
    const Nanoseconds moving = ring(first_rank, replicas, parameters_[l]) - latencies;
    load.sums.push_back(load.sums.back() + rounds * (work_[l] + moving.value));
  }
  load.at_cut.assign(work_.size() + 1, 0);
  for (int l = 0; l + 1 < layers_; ++l) {
    const int last = first_rank + replicas - 1;
    const Nanoseconds longer =
        std::max(messages(first_rank - 1, first_rank, l), messages(last, last + 1, l));
    load.at_cut[static_cast<std::size_t>(l) + 1] = rounds * longer.value;
  }
  return load;
}

std::optional<Partition> ReplicatedStages::cut(const std::vector<int>& stage_replicas) {
  const auto stages = static_cast<int>(stage_replicas.size());
  if (stages > layers_) return std::nullopt;
  const std::vector<int> first = first_ranks(stage_replicas);
  std::vector<std::vector<std::int64_t>> of_stage;
  BesidesLayers besides;
  std::vector<int> kinds;
  for (int s = 0; s < stages; ++s) {
    const auto i = static_cast<std::size_t>(s);
    const Load& load = load_on(first[i], stage_replicas[i]);
    auto& own = of_stage.emplace_back(work_.size());
    for (std::size_t l = 0; l < own.size(); ++l) own[l] = load.sums[l + 1] - load.sums[l];
    besides.fixed.push_back(load.fixed);
    besides.at_cut.push_back(load.at_cut);
    kinds.push_back(s);
  }
  return balanced_partition(of_stage, kinds, besides);
}

ReplicatedStages::Best& ReplicatedStages::cell(int stages, int layer, int rank) {
  const auto width = static_cast<std::size_t>(ranks_) + 1;
  const auto height = static_cast<std::size_t>(layers_) + 1;
  return table_[(static_cast<std::size_t>(stages) * height + static_cast<std::size_t>(layer)) *
                    width +
                static_cast<std::size_t>(rank)];
}

ReplicatedStages::Best ReplicatedStages::best_of(int stages, int layer, int rank) {
  Best best;
  const int most = ranks_ - rank - (stages - 1);
  for (int count = 1; count <= most; ++count) {
    if (micro_batches_ % count != 0) continue;
    const Load& load = load_on(rank, count);
    const auto begin = load.sums[static_cast<std::size_t>(layer)];
    const auto own = [&](int end) {
      return load.fixed + load.sums[static_cast<std::size_t>(end)] - begin;
    };
    const auto at = [&](int cut) { return load.at_cut[static_cast<std::size_t>(cut)]; };
    const int last = layers_ - (stages - 1);
    for (int end = stages == 1 ? last : layer + 1; end <= last; ++end) {
      if (own(end) >= best.largest) break;  // and longer ones cost no less
      const std::int64_t rest = cell(stages - 1, end, rank + count).largest;
      const std::int64_t largest = std::max({own(end), at(layer), at(end), rest});
      if (largest < best.largest) best = {largest, count, end};
    }
  }
  return best;
}

void ReplicatedStages::fill_table() {
  if (!table_.empty()) return;
  const int most = std::min(ranks_, layers_);
  table_.resize(static_cast<std::size_t>(most + 1) * static_cast<std::size_t>(layers_ + 1) *
                static_cast<std::size_t>(ranks_ + 1));
  cell(0, layers_, ranks_).largest = 0;
  for (int k = 1; k <= most; ++k) {
    for (int l = 0; l <= layers_ - k; ++l) {
      for (int r = 0; r <= ranks_ - k; ++r) cell(k, l, r) = best_of(k, l, r);
    }
  }
}

std::int64_t ReplicatedStages::least_largest(int stages) {
  fill_table();
  return cell(stages, 0, 0).largest;
}

std::vector<int> ReplicatedStages::best_replicas(int stages) {
  fill_table();
  std::vector<int> replicas;
  int layer = 0, rank = 0;
  for (int k = stages; k > 0; --k) {
    const Best best = cell(k, layer, rank);
    PIPEWRIGHT_ASSERT(best.replicas > 0, "so many stages cannot share out the ranks");
    replicas.push_back(best.replicas);
    layer = best.end;
    rank += best.replicas;
  }
  return replicas;
}

void ReplicatedStages::set_rings(const std::vector<int>& stage_replicas,
                                 std::span<const StagePlan> stages,
                                 std::vector<StageCosts>& stage_costs) {
  const std::vector<int> first = first_ranks(stage_replicas);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Bytes parameters;
    for (int l = stages[s].first_layer; l < stages[s].end_layer; ++l)
      parameters += parameters_[static_cast<std::size_t>(l)];
    stage_costs[s].reduce = ring(first[s], stage_replicas[s], parameters);
  }
}

void set_ring_times(const ConfigurationCosts& costs, const ParallelSetup& setup,
                    std::span<const StagePlan> stages, std::vector<StageCosts>& stage_costs) {
  if (setup.stage_replicas.empty()) return;
  ReplicatedStages(costs, setup).set_rings(setup.stage_replicas, stages, stage_costs);
}

std::int64_t replicated_bound(const ParallelSetup& setup, const std::vector<StageCosts>& costs) {
  const std::vector<int>& replicas = setup.stage_replicas;
  const auto update = [&](std::size_t s) { return (costs[s].reduce + costs[s].opt).value; };
  std::int64_t bound = 0, fill = 0, drain = 0;
  for (std::size_t s = 0; s < costs.size(); ++s) {
    std::int64_t before = 0;  // added, until the last replica's first micro-batch
    for (std::size_t t = 0; t < s; ++t)
      before = std::max(before, costs[t].f.value * ((replicas[s] - 1) / replicas[t]));
    const std::int64_t rounds = setup.micro_batches / replicas[s];
    const std::int64_t work = rounds * (costs[s].f + costs[s].b).value;
    const std::int64_t last = s == 0 ? update(0) : std::max(update(s), drain + update(0));
    bound = std::max(bound, fill + before + work + (rounds - 1) * update(s) + last);
    fill += costs[s].f.value;
    drain += costs[s].b.value;
  }
  return bound;
}

std::vector<bool> replicated_ranks_that_fit(const ParallelSetup& setup,
                                            const std::vector<StageMemory>& memory,
                                            const RankLimits& limits) {
  std::vector<bool> fits;
  for (std::size_t s = 0; s < memory.size(); ++s) {
    const int count = setup.stage_replicas[s];
    const int behind = setup.pipeline - 1 - static_cast<int>(fits.size());
    const int live = std::min(behind / count + 1, setup.micro_batches / count);
    const Bytes held = memory[s].constant + memory[s].f * live;
    for (int r = 0; r < count; ++r) {
      const int rank = static_cast<int>(fits.size());
      fits.push_back(limits.all.value <= 0 || held <= limits.of(rank));
    }
  }
  return fits;
}

}  // namespace pipewright::planner
