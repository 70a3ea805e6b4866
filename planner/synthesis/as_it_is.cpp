#include "planner/synthesis/as_it_is.hpp"

#include <algorithm>

#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
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
  const sim::Result result = sim::simulate(program, request.costs);
  if (!result.finished) return std::nullopt;
  const Figures figures = figures_of(program, result.timeline, request.costs);
  if (over_limit(request, figures)) return std::nullopt;
  AsItIs timed;
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    std::int64_t end = figures.ranks[r].last_end_ns;
    if (request.with_updates) {
      const RankId rank(static_cast<int>(r));
      end += request.costs.update_time(rank, order.placement.stages_of(rank)).value;
    }
    timed.makespan_ns = std::max(timed.makespan_ns, end);
    timed.span_ns = std::max(timed.span_ns, figures.ranks[r].span_ns);
  }
  timed.order = std::move(order);
  return timed;
}

bool fusing_helps(const SynthesisRequest& request) {
  for (int s = 0; s < static_cast<int>(request.costs.stages.size()); ++s) {
    const StageCosts& costs = request.costs.stages[static_cast<std::size_t>(s)];
    if (costs.b < costs.i + costs.w || request.costs.memory_or_unit(s).i.value > 0) return true;
  }
  return false;
}

bool differs_as_it_is(const SynthesisRequest& request, const Order& order) {
  // Shared links are no part of the preset's model, but a simulation has them.
  if (!request.split_backward || request.costs.has_shared_links()) return false;
  bool pairs = false, fused = false;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      pairs |= cell.partner.has_value();
      fused |= cell.action.kind == ActionKind::B;
    }
  }
  return pairs || (fused && fusing_helps(request));
}

std::int64_t work_bound(const SynthesisRequest& request, const Placement& placement) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(placement.ranks()), 0);
  for (int s = 0; s < placement.stages(); ++s) {
    const StageCosts& costs = request.costs.stages[static_cast<std::size_t>(s)];
    std::int64_t each = costs.f.value + std::min(costs.b.value, costs.i.value + costs.w.value);
    const std::int64_t pair = request.costs.overlapped_pair.value;
    if (pair > 0) each = std::min(each, pair);
    const RankId rank = placement.rank_of(StageId(s), MicroBatchId(0));
    work[static_cast<std::size_t>(rank.value)] += each * request.micro_batches;
  }
  return work.empty() ? 0 : *std::max_element(work.begin(), work.end());
}

}  // namespace pipewright::planner::synthesis
