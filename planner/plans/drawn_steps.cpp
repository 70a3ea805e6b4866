#include "planner/plans/drawn_steps.hpp"

#include <utility>
#include <vector>

#include "planner/costs/drawn_durations.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {

Distribution drawn_steps(const Plan& plan, const Program& run, const Profile& profile,
                         std::int64_t samples, std::uint64_t seed) {
  const CostTable costs = costs_of_run(plan);
  const DrawnDurations durations(run, costs, plan.stages, profile, plan.micro_batch_size,
                                 plan.division(), whole_replicas(plan));
  std::vector<std::int64_t> steps;
  for (std::int64_t k = 0; k < samples; ++k) {
    const std::vector<std::int64_t> drawn = durations.draw(seed + static_cast<std::uint64_t>(k));
    steps.push_back(sim::simulate(run, costs, {.compute_ns = drawn}).timeline.makespan_ns);
  }
  return distribution_of(std::move(steps));
}

}  // namespace pipewright::planner
