#include "planner/plans/long_step.hpp"

#include <limits>

#include "core/base/error.hpp"
#include "core/timeline/ratios.hpp"
#include "planner/schedules/order_period.hpp"
#include "sim/engine.hpp"
#include "sim/steady/listing_period.hpp"
#include "sim/steady/order_middle.hpp"
#include "sim/steady/steady_state.hpp"

namespace pipewright::planner {
namespace {

struct ShortStep {
  Figures figures;
  std::int64_t instructions = 0;
  std::optional<sim::SteadyState> steady;
  std::string why_not;  // whatever the number of micro-batches
};

ScheduleRequest with_micro_batches(ScheduleRequest request, int micro_batches) {
  request.micro_batches = micro_batches;
  return request;
}

ShortStep short_step(const Schedule& schedule, const ScheduleRequest& request, int period,
                     const CostTable& costs, const CommPolicy& policy,
                     const LowerOptions& options) {
  ShortStep step;
  const Order order = schedule.make(request);
  const auto middle = sim::middle_of(
      order, schedule.make(with_micro_batches(request, request.micro_batches + period)));
  if (!middle) return step;
  const auto periods = sim::listing_period(order, *middle);
  if (!periods) return step;
  const Program program = lower(order, policy, options);
  step.why_not = sim::no_steady_state(program, costs);
  if (!step.why_not.empty()) return step;
  const sim::Result result = sim::simulate(program, costs);
  if (!result.finished) {
    step.why_not = "a step of " + std::to_string(request.micro_batches) + " gets stuck";
    return step;
  }
  step.figures = figures_of(program, result.timeline, costs);
  step.instructions = static_cast<std::int64_t>(program.code.size());
  step.steady = sim::find_steady_state(program, costs, result.timeline, *periods * period);
  return step;
}

/// a + n * b. Throws where that is more than 64 bits hold.
std::int64_t after_repetitions(std::int64_t a, std::int64_t n, std::int64_t b) {
  std::int64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(n, b, &product) || __builtin_add_overflow(a, product, &sum)) {
    throw InputError(
        "the step takes more nanoseconds than 64 bits hold (292 years); use fewer micro-batches or "
        "smaller costs");
  }
  return sum;
}

LongStep repeated(const ShortStep& step, int simulated, std::int64_t repetitions) {
  const sim::SteadyState& steady = *step.steady;
  LongStep found;
  found.figures = step.figures;
  found.instructions = after_repetitions(step.instructions, repetitions, steady.instructions);
  found.simulated = simulated;
  found.micro_batches = steady.micro_batches;
  found.repetition_ns = steady.step_ns;
  found.repetitions = repetitions;
  Figures& figures = found.figures;
  figures.makespan_ns = after_repetitions(figures.makespan_ns, repetitions, steady.step_ns);
  std::int64_t all = 0;  // set_ratios() adds them up; here an overflow is noticed
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    RankFigures& rank = figures.ranks[r];
    rank.busy_ns = after_repetitions(rank.busy_ns, repetitions, steady.busy_ns[r]);
    rank.span_ns = after_repetitions(rank.span_ns, repetitions, steady.step_ns);
    rank.last_end_ns = after_repetitions(rank.last_end_ns, repetitions, steady.step_ns);
    all = after_repetitions(all, 1, rank.busy_ns);
  }
  set_ratios(figures);
  return found;
}

LongStepAnswer because(std::string why_not) { return {std::nullopt, std::move(why_not)}; }

}  // namespace

int first_tried(const ScheduleRequest& request, int period) {
  // The fill and the drain of any of these rules, and a few periods more.
  const int tried = 4 * (request.ranks + period);
  return tried + ((request.micro_batches - tried) % period + period) % period;
}

LongStepAnswer long_step(const Schedule& schedule, const ScheduleRequest& request,
                         const CostTable& costs, const CommPolicy& policy,
                         const LowerOptions& options, double most_actions) {
  const std::int64_t m = request.micro_batches;
  const int period = order_period(schedule, request);
  if (period == 0)
    return because("the order of " + std::string(schedule.name) + " is not known to repeat itself");
  std::int64_t tried = first_tried(request, period);
  while (2 * tried <= m) {
    const double actions = 3.0 * request.ranks * request.chunks * static_cast<double>(tried);
    if (actions > most_actions)
      return because("no state came back within " + std::to_string(tried) + " micro-batches");
    const ScheduleRequest shorter = with_micro_batches(request, static_cast<int>(tried));
    if (const auto refused = refusal_of(schedule, shorter)) return because(*refused);
    const ShortStep step = short_step(schedule, shorter, period, costs, policy, options);
    if (!step.why_not.empty()) return because(step.why_not);
    const std::int64_t left = m - tried;
    if (step.steady && left % step.steady->micro_batches == 0)
      return {repeated(step, static_cast<int>(tried), left / step.steady->micro_batches), ""};
    tried += step.steady ? left % step.steady->micro_batches : tried / period * period;
  }
  return because("a short step would have more than half of the micro-batches");
}

}  // namespace pipewright::planner
