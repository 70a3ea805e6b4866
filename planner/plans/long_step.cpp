#include "planner/plans/long_step.hpp"

#include "planner/schedules/order_period.hpp"
#include "sim/engine.hpp"
#include "sim/steady/drift.hpp"
#include "sim/steady/listing_period.hpp"
#include "sim/steady/order_middle.hpp"
#include "sim/steady/program_middle.hpp"
#include "sim/steady/repeated_step.hpp"
#include "sim/steady/steady_state.hpp"

namespace pipewright::planner {
namespace {

struct ShortStep {
  Program program;
  Figures figures;
  std::optional<sim::SteadyState> steady;
  std::string why_not;  // whatever the number of micro-batches
};

ScheduleRequest with_micro_batches(ScheduleRequest request, int micro_batches) {
  request.micro_batches = micro_batches;
  return request;
}

/// What long_step() is asked.
struct Asked {
  const Schedule& schedule;
  const ScheduleRequest& request;
  const CostTable& costs;
  const CommPolicy& policy;
  const LowerOptions& options;

  Order order(int micro_batches) const {
    return schedule.make(with_micro_batches(request, micro_batches));
  }
};

ShortStep short_step(const Asked& asked, int micro_batches, int period) {
  ShortStep step;
  const Order order = asked.order(micro_batches);
  const auto middle = sim::middle_of(order, asked.order(micro_batches + period));
  if (!middle) return step;
  const auto periods = sim::listing_period(order, *middle);
  if (!periods) return step;
  step.program = lower(order, asked.policy, asked.options);
  step.why_not = sim::no_steady_state(step.program, asked.costs);
  if (!step.why_not.empty()) return step;
  const auto phases = sim::middle_of(step.program, order, *middle, *periods);
  if (!phases) return step;
  const sim::Result result = sim::simulate(step.program, asked.costs);
  if (!result.finished) {
    step.why_not = "a step of " + std::to_string(micro_batches) + " gets stuck";
    return step;
  }
  step.figures = figures_of(step.program, result.timeline, asked.costs);
  const int repeated = *periods * period;
  step.steady =
      sim::find_steady_state(step.program, asked.costs, result.timeline, *phases, repeated);
  if (step.steady || !asked.policy.is_free_of_waits()) return step;
  const Program longer = lower(asked.order(micro_batches + repeated), asked.policy, asked.options);
  const sim::Result of_longer = sim::simulate(longer, asked.costs);
  step.steady = sim::find_drift({step.program, result.timeline}, {longer, of_longer.timeline},
                                *phases, repeated);
  return step;
}

LongStep repeated(const ShortStep& step, const CostTable& costs, int simulated,
                  std::int64_t repetitions) {
  const sim::SteadyState& steady = *step.steady;
  LongStep found;
  found.figures = sim::repeated(step.program, costs, steady, repetitions, step.figures);
  found.instructions =
      static_cast<std::int64_t>(step.program.code.size()) + repetitions * steady.instructions;
  found.simulated = simulated;
  found.micro_batches = steady.micro_batches;
  found.repetition_ns = steady.step_ns;
  found.repetitions = repetitions;
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
    const ShortStep step =
        short_step({schedule, request, costs, policy, options}, shorter.micro_batches, period);
    if (!step.why_not.empty()) return because(step.why_not);
    const std::int64_t left = m - tried;
    if (step.steady && left % step.steady->micro_batches == 0)
      return {repeated(step, costs, static_cast<int>(tried), left / step.steady->micro_batches),
              ""};
    tried += step.steady ? left % step.steady->micro_batches : tried / period * period;
  }
  return because("a short step would have more than half of the micro-batches");
}

}  // namespace pipewright::planner
