#include "planner/search/drawn_choice.hpp"

#include <algorithm>
#include <utility>

#include "planner/plans/drawn_steps.hpp"
#include "planner/plans/executable.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"

namespace pipewright::planner {
namespace {

std::string reason_of(const DrawnChoice& choice) {
  const DrawnRow& best = choice.rows[choice.best];
  std::string text = "Of " + std::to_string(choice.rows.size()) + " rows, each drawn " +
                     std::to_string(best.steps.count) +
                     " times from the profile's spread, this takes least on average: " +
                     format_duration(best.steps.mean);
  if (best.row > 0 && choice.rows.front().row == 0)
    text += ", against " + format_duration(choice.rows.front().steps.mean) + " of row 1";
  return text + ".";
}

}  // namespace

DrawnChoice choose_by_draws(const Job& job, const Profile& profile, int cores, std::int64_t samples,
                            SearchResult& result) {
  DrawnChoice choice;
  const auto costs = costs_of_job(job, &profile, cores);
  std::vector<Plan> plans;
  for (std::size_t row = 0; row < std::min(result.ranked.size(), kMostDrawnRows); ++row) {
    const auto step = static_cast<double>(result.ranked[row].step.value);
    const auto first = static_cast<double>(result.ranked.front().step.value);
    if (step > first * (1 + kDrawnWithin)) break;
    Plan plan = row == 0 && result.best ? *result.best : plan_of_row(job, *costs, result, row);
    if (divides_layers(plan) && !cpus_run(plan)) continue;
    choice.rows.push_back({row, drawn_steps(plan, program_of_run(plan), profile, samples)});
    plans.push_back(std::move(plan));
  }
  if (choice.rows.empty()) return choice;  // nothing is known of what GPUs' groups wait for
  const auto least = std::ranges::min_element(
      choice.rows, {}, [](const DrawnRow& one) { return one.steps.mean.value; });
  choice.best = static_cast<std::size_t>(least - choice.rows.begin());
  Plan& plan = plans[choice.best];
  if (result.best) {
    plan.tuner.evaluated = result.best->tuner.evaluated;
    plan.tuner.pruned = result.best->tuner.pruned;
  }
  plan.tuner.reasons.push_back(reason_of(choice));
  result.best = std::move(plan);
  result.drawn_best = least->steps;
  return choice;
}

}  // namespace pipewright::planner
