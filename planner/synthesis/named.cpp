#include "planner/synthesis/named.hpp"

#include <algorithm>
#include <optional>

#include "core/base/error.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/scope.hpp"

namespace pipewright::planner::synthesis {
namespace {

bool same_placement(const Placement& a, const Placement& b) {
  return a.ranks() == b.ranks() && !b.looks_at_micro_batch() && same_ranks(a, b);
}

/// The schedule's order, nullopt where it refuses or its rule cannot be carried out.
std::optional<Order> order_of_schedule(const Schedule& schedule, const ScheduleRequest& request) {
  if (schedule.traits.searched || schedule.traits.asynchronous || refusal_of(schedule, request))
    return std::nullopt;
  try {
    return schedule.make(request);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// What a named schedule may plan with: the least limit of any rank.
Bytes common_limit(const Problem& problem) {
  std::int64_t least = kNever;
  for (int r = 0; r < problem.ranks; ++r) {
    if (problem.limited(r)) least = std::min(least, problem.limit[at(r)] + problem.constant[at(r)]);
  }
  return Bytes(least == kNever ? 0 : least);
}

}  // namespace

NamedBest offer_named(Search& search, const SynthesisRequest& request) {
  const Problem& problem = search.problem;
  NamedBest best;
  if (problem.stages % problem.ranks != 0) return best;
  ScheduleRequest named{.ranks = problem.ranks,
                        .micro_batches = problem.micro_batches,
                        .chunks = problem.stages / problem.ranks,
                        .parameters = {},
                        .costs = request.costs,
                        .memory_limit = common_limit(problem)};
  for (const Schedule& schedule : schedules()) {
    // What a cost-driven schedule's name promises may fit, and differ from what the limit gives.
    const int plans = schedule.traits.cost_driven && named.memory_limit.value > 0 ? 2 : 1;
    for (int plan = 0; plan < plans; ++plan) {
      ScheduleRequest planned = named;
      if (plan == 1) planned.memory_limit = Bytes(0);
      const auto order = order_of_schedule(schedule, planned);
      if (!order || !same_placement(problem.placement, order->placement)) continue;
      if (const auto sequence = sequence_of(problem, *order);
          sequence && keeps_limits(problem, *sequence)) {
        const std::int64_t value = search.offer(*sequence, schedule.name, "named schedules");
        if (value < best.value && (problem.turn.empty() || keeps_turns(*order, problem.turn)))
          best = {std::string(schedule.name), value, std::nullopt};
      }
      if (!differs_as_it_is(request, *order)) continue;
      auto timed = time_as_it_is(request, *order);
      if (!timed) continue;
      const std::int64_t value = timed->value(request.objective);
      if (value < best.value) best = {std::string(schedule.name), value, std::move(timed)};
    }
  }
  return best;
}

}  // namespace pipewright::planner::synthesis
