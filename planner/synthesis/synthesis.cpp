#include "planner/synthesis/synthesis.hpp"

#include <algorithm>
#include <iterator>
#include <random>

#include "planner/synthesis/as_it_is.hpp"
#include "planner/synthesis/bound.hpp"
#include "planner/synthesis/follow_order.hpp"
#include "planner/synthesis/improve.hpp"
#include "planner/synthesis/named.hpp"
#include "planner/synthesis/outcome.hpp"
#include "planner/synthesis/own_times.hpp"
#include "planner/synthesis/prove.hpp"
#include "planner/synthesis/search.hpp"
#include "planner/synthesis/tune_rules.hpp"
#include "planner/synthesis/turns.hpp"

namespace pipewright::planner {

using namespace synthesis;

namespace {

/// The request's own orders to begin with.
void offer_starts(Search& search, const SynthesisRequest& request) {
  for (const auto& [name, order] : request.starts) {
    const auto sequence = sequence_of(search.problem, order);
    if (sequence && keeps_limits(search.problem, *sequence))
      search.offer(*sequence, name, "named schedules");
  }
}

SynthesisResult run(const SynthesisRequest& request) {
  if (request.costs.actions != nullptr) return search_turns(request);
  const Problem problem = problem_of(request);
  if (auto least = limits_too_low(problem); !least.empty()) {
    SynthesisResult nothing;
    nothing.objective = request.objective;
    nothing.least_limit = std::move(least);
    return nothing;
  }
  Search search(problem, lower_bound(problem));
  const std::int64_t budget = std::max<std::int64_t>(0, request.budget_ns);
  search.on_improvement = [&](std::string_view phase) {
    if (!request.on_progress) return;
    request.on_progress({.elapsed_ns = (Search::Clock::now() - search.begin).count(),
                         .value_ns = search.best_value,
                         .lower_bound_ns = search.bound,
                         .phase = phase});
  };
  if (request.wanted_below_ns > 0) search.wanted_below = request.wanted_below_ns;
  search.keep_beaten = static_cast<std::size_t>(std::max(0, request.runners_up));
  offer_starts(search, request);
  NamedBest named = request.named_schedules ? offer_named(search, request) : NamedBest{};
  std::mt19937_64 dice(request.seed);
  const std::int64_t steps = request.steps > 0 ? request.steps : budget / kNanosecondsAStep;
  tune_rules(search, dice, steps / 2);
  if (search.best.empty()) search.offer(one_by_one(problem), "one by one", "list scheduling");
  follow_order(search, dice, steps / 10 * 4);
  improve(search, dice, steps / 10);
  if (request.prove) {
    std::int64_t nodes = request.prove_nodes;
    if (prove(search, nodes)) search.bound = search.to_beat();
  }
  SynthesisResult result = result_of(search);
  result.objective = request.objective;
  result.best_named = named.name;
  result.best_named_ns = named.name.empty() ? 0 : named.value;
  result.best_named_chunks = named.name.empty() ? 0 : problem.stages / problem.ranks;
  if (named.as_it_is && named.value < result.value_ns) take_named(result, request, named);
  return result;
}

/// The better of two searches among different orders; the bound is that of both together.
SynthesisResult better_of(SynthesisResult a, SynthesisResult b, int runners_up) {
  if (!b.order) return a;
  if (!a.order) return b;
  if (b.value_ns < a.value_ns) std::swap(a, b);
  a.runners_up.push_back(std::move(*b.order));
  std::move(b.runners_up.begin(), b.runners_up.end(), std::back_inserter(a.runners_up));
  a.runners_up.resize(std::min(a.runners_up.size(), static_cast<std::size_t>(runners_up)));
  a.lower_bound_ns = std::min(a.lower_bound_ns, b.lower_bound_ns);
  a.proven = a.value_ns <= a.lower_bound_ns;
  a.gap = gap_of(a.value_ns, a.lower_bound_ns);
  if (a.best_named.empty() || (!b.best_named.empty() && b.best_named_ns < a.best_named_ns)) {
    a.best_named = b.best_named;
    a.best_named_ns = b.best_named_ns;
    a.best_named_chunks = b.best_named_chunks;
  }
  a.evaluated += b.evaluated;
  a.elapsed_ns += b.elapsed_ns;
  return a;
}

}  // namespace

std::string_view to_string(Objective objective) {
  return objective == Objective::Makespan ? "makespan" : "span";
}

namespace {

/// What is found without looking at times of single actions: as much effort again, but whoever
/// knows the times is never worse off than who does not.
SynthesisResult uninformed(const SynthesisRequest& request) {
  SynthesisRequest plain = request;
  plain.costs.actions = nullptr;
  plain.prove = false;
  plain.wanted_below_ns = 0;
  plain.runners_up = 3;
  return synthesise(plain);
}

SynthesisResult synthesise_kinds(const SynthesisRequest& request) {
  if (!request.split_backward || !fusing_helps(request)) {
    SynthesisResult result = run(request);
    result.scope = scope_of(request);
    return result;
  }
  // Half of the search for each.
  SynthesisRequest half = request;
  half.budget_ns /= 2;
  half.steps /= 2;
  SynthesisResult apart = run(half);
  half.split_backward = false;
  SynthesisResult better = better_of(std::move(apart), run(half), std::max(0, request.runners_up));
  better.scope = scope_of(request);
  return better;
}

}  // namespace

SynthesisResult synthesise(const SynthesisRequest& request) {
  if (request.costs.actions == nullptr) return synthesise_kinds(request);
  SynthesisResult before = uninformed(request);
  SynthesisRequest wanted = request;
  const std::string name = "the search without these times";
  if (before.order) wanted.starts.emplace_back(name, std::move(*before.order));
  for (Order& order : before.runners_up) wanted.starts.emplace_back(name, std::move(order));
  SynthesisResult found = synthesise_kinds(wanted);
  found.evaluated += before.evaluated;
  found.elapsed_ns += before.elapsed_ns;
  return found;
}

std::int64_t synthesis_bound(const SynthesisRequest& request) {
  const Problem problem = problem_of(request);
  const std::int64_t bound =
      request.costs.actions != nullptr ? own_bound(problem) : lower_bound(problem);
  if (!request.split_backward || !fusing_helps(request)) return bound;
  SynthesisRequest fused = request;
  fused.split_backward = false;
  const Problem joined = problem_of(fused);
  return std::min(bound,
                  request.costs.actions != nullptr ? own_bound(joined) : lower_bound(joined));
}

}  // namespace pipewright::planner
