#include "planner/synthesis/outcome.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::planner::synthesis {

std::vector<Bytes> limits_too_low(const Problem& problem) {
  // Micro-batches that leave something behind add up, so all of them count.
  const Sequence frugal = one_by_one(problem);
  std::vector<Bytes> least;
  bool low = false;
  for (int r = 0; r < problem.ranks; ++r) {
    const std::int64_t peak = peak_of(problem, frugal, r);
    low |= peak > problem.limit[at(r)];
    least.emplace_back(peak + problem.constant[at(r)]);
  }
  return low ? least : std::vector<Bytes>{};
}

double gap_of(std::int64_t value, std::int64_t bound) {
  return bound > 0 ? static_cast<double>(value) / static_cast<double>(bound) - 1.0 : 0.0;
}

SynthesisResult result_of(Search& search) {
  SynthesisResult result;
  PIPEWRIGHT_ASSERT(!search.best.empty() && search.evaluator.run(search.best),
                    "a synthesis ended without an order");
  PIPEWRIGHT_ASSERT(keeps_limits(search.problem, search.best),
                    "a synthesised order breaks the memory limit");
  result.order = order_of(search.problem, search.best);
  for (const Sequence& sequence : search.beaten)
    result.runners_up.push_back(order_of(search.problem, sequence));
  result.value_ns = search.best_value;
  result.makespan_ns = search.evaluator.makespan();
  result.span_ns = search.evaluator.span();
  result.lower_bound_ns = search.bound;
  result.proven = search.best_value <= search.bound;
  result.gap = gap_of(search.best_value, search.bound);
  result.found_by = search.found_by;
  result.evaluated = search.evaluated;
  result.elapsed_ns = (Search::Clock::now() - search.begin).count();
  return result;
}

void take_named(SynthesisResult& result, const SynthesisRequest& request, NamedBest& named) {
  result.lower_bound_ns =
      std::min(result.lower_bound_ns, work_bound(request, named.as_it_is->order.placement));
  result.order = std::move(named.as_it_is->order);
  result.makespan_ns = named.as_it_is->makespan_ns;
  result.span_ns = named.as_it_is->span_ns;
  result.value_ns = named.value;
  result.found_by = named.name;
  result.proven = result.value_ns <= result.lower_bound_ns;
  result.gap = gap_of(result.value_ns, result.lower_bound_ns);
}

}  // namespace pipewright::planner::synthesis
