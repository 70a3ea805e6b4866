#include "planner/synthesis/as_it_is.hpp"

#include <algorithm>

#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/synthesis/own_times.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner::synthesis {
namespace {

bool over_limit(const SynthesisRequest& request, const Figures& figures) {
  const auto& limits = request.memory_limit;
  for (std::size_t r = 0; r < figures.ranks.size() && !limits.empty(); ++r) {
    const std::int64_t limit = limits[limits.size() == 1 ? 0 : r].value;
    const RankFigures& rank = figures.ranks[r];
    const std::int64_t peak =
        request.costs.memory.empty() ? rank.peak_activations : rank.peak_bytes;
    if (limit > 0 && peak > limit) return true;
  }
  return false;
}

}  // namespace

std::optional<AsItIs> time_as_it_is(const SynthesisRequest& request, Order order) {
  const Program program = lower(order, comm_policy_preset("ideal"));
  AsItIs timed;
  for (int d = 0; d < replicas_of(request.costs); ++d) {
    const CostTable costs =
        request.costs.actions != nullptr ? costs_of_replica(request.costs, d) : request.costs;
    const sim::Result result = sim::simulate(program, costs);
    if (!result.finished) return std::nullopt;
    const Figures figures = figures_of(program, result.timeline, costs);
    if (over_limit(request, figures)) return std::nullopt;
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
      std::int64_t end = figures.ranks[r].last_end_ns;
      if (request.with_updates) {
        const RankId rank(static_cast<int>(r));
        end += costs.update_time(rank, order.placement.stages_of(rank)).value;
      }
      timed.makespan_ns = std::max(timed.makespan_ns, end);
      timed.span_ns = std::max(timed.span_ns, figures.ranks[r].span_ns);
    }
  }
  timed.order = std::move(order);
  return timed;
}

namespace {

/// What a micro-batch of a replica keeps a stage's rank busy for at least.
std::int64_t least_work(const SynthesisRequest& request, int stage, int replica, int k) {
  const auto time = [&](ActionKind kind) {
    const MicroBatchId micro_batch(replica * request.micro_batches + k);
    return request.costs
        .compute_time({.kind = kind, .stage = StageId(stage), .micro_batch = micro_batch})
        .value;
  };
  const std::int64_t each =
      time(ActionKind::F) +
      std::min(time(ActionKind::B), time(ActionKind::I) + time(ActionKind::W));
  const std::int64_t pair = request.costs.overlapped_pair.value;
  return pair > 0 ? std::min(each, pair) : each;
}

/// Of any micro-batch, whose actions have times of their own.
bool own_fusing_helps(const SynthesisRequest& request) {
  const int all = replicas_of(request.costs) * request.micro_batches;
  for (int s = 0; s < request.placement.stages(); ++s) {
    for (int k = 0; k < all; ++k) {
      const auto time = [&](ActionKind kind) {
        return request.costs.compute_time(
            {.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(k)});
      };
      if (time(ActionKind::B) < time(ActionKind::I) + time(ActionKind::W)) return true;
    }
  }
  return false;
}

}  // namespace

bool fusing_helps(const SynthesisRequest& request) {
  if (request.only_split) return false;
  if (request.costs.actions != nullptr && own_fusing_helps(request)) return true;
  for (int s = 0; s < static_cast<int>(request.costs.stages.size()); ++s) {
    const StageCosts& costs = request.costs.stages[static_cast<std::size_t>(s)];
    if ((request.costs.actions == nullptr && costs.b < costs.i + costs.w) ||
        request.costs.memory_or_unit(s).i.value > 0)
      return true;
  }
  return false;
}

bool differs_as_it_is(const SynthesisRequest& request, const Order& order) {
  // Shared links are no part of the preset's model, but a simulation has them.
  if (request.costs.has_shared_links()) return false;
  bool pairs = false, fused = false, split = false;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      pairs |= cell.partner.has_value();
      fused |= cell.action.kind == ActionKind::B;
      split |= cell.action.kind == ActionKind::W;
    }
  }
  if (request.costs.actions != nullptr) {
    // Kinds of backwards whose times were not given do not count.
    if ((fused && request.only_split) || (split && !request.split_backward)) return false;
    // Its own numbers of micro-batches do.
    if (!keeps_turns(order, turn_of(order))) return true;
  }
  if (!request.split_backward) return false;
  return pairs || (fused && fusing_helps(request));
}

std::int64_t work_bound(const SynthesisRequest& request, const Placement& placement) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(placement.ranks()), 0);
  std::int64_t most = 0;
  for (int d = 0; d < replicas_of(request.costs); ++d) {
    std::ranges::fill(work, 0);
    for (int s = 0; s < placement.stages(); ++s) {
      const RankId rank = placement.rank_of(StageId(s), MicroBatchId(0));
      for (int k = 0; k < request.micro_batches; ++k)
        work[static_cast<std::size_t>(rank.value)] += least_work(request, s, d, k);
    }
    for (const std::int64_t each : work) most = std::max(most, each);
  }
  return most;
}

}  // namespace pipewright::planner::synthesis
