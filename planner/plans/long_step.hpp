// The figures of a step of any number of micro-batches, from a short one and its steady state
// (docs/decisions/0059-steady-state.md). Pure functions; any number of threads may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/costs/costs.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

struct LongStep {
  Figures figures;
  std::int64_t instructions = 0;   // of the whole step
  int simulated = 0;               // micro-batches of the short step
  int micro_batches = 0;           // of one repetition
  std::int64_t repetition_ns = 0;  // how much later everything is after it
  std::int64_t repetitions = 0;    // that were not simulated
};

struct LongStepAnswer {
  std::optional<LongStep> step;
  std::string why_not;  // one sentence without a full stop
};

/// Of the first short step that is tried, for an order_period() above 0; a step of fewer than twice
/// as many micro-batches is not looked at.
int first_tried(const ScheduleRequest& request, int period);

/// What figures_of() says of the request's order, lowered and simulated, without making it: the
/// same integers, and the ratios that follow from them. Costs are those of single stages. Looks for
/// a steady state of ever longer steps, as long as these have fewer than `most_actions` actions and
/// at most half of the micro-batches. Throws InputError where a time does not fit into 64 bits.
LongStepAnswer long_step(const Schedule& schedule, const ScheduleRequest& request,
                         const CostTable& costs, const CommPolicy& policy,
                         const LowerOptions& options, double most_actions = 4e6);

}  // namespace pipewright::planner
