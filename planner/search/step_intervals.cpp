#include "planner/search/step_intervals.hpp"

#include <cmath>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/coefficients.hpp"
#include "planner/measured/normal.hpp"
#include "planner/plans/drawn_steps.hpp"
#include "planner/plans/executable.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/measured_fit.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {
namespace {

/// A synthesised order stands for the schedule that it was made from.
Configuration configuration_of(const Job& job, Candidate candidate) {
  if (candidate.synthesised) candidate.schedule = candidate.synthesised->from;
  return read_configuration(text_of(candidate), job, nullptr).configuration;
}

}  // namespace

std::vector<StepInterval> intervals_of(const Job& job, const Profile* profile, int cores,
                                       const std::vector<Candidate>& ranked) {
  const auto model = estimated_architecture(job);
  if (ranked.empty() || profile != nullptr || !model) return {};
  const ScaleFit measured = fit_measured_steps(job, nullptr, cores).times;
  const bool is_mixture = model->experts.count > 0;
  ScaleFit fits[] = {measured, measured};  // of ranks that wait for no other, and of those that do
  for (const bool waits : {false, true}) {
    fits[waits].expect_within(
        deviations_of_sources(machine_of(job.cluster).time_deviation(), is_mixture, waits));
  }
  std::vector<Configuration> configurations;
  for (const Candidate& candidate : ranked)
    configurations.push_back(configuration_of(job, candidate));
  const std::vector<ScaleVector> slopes =
      slopes_of(job, nullptr, cores, configurations, measured.scales);
  std::vector<StepInterval> intervals;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const auto step = static_cast<double>(ranked[i].step.value);
    const bool waits = waits_for_group(ranked[i].parallel, is_mixture);
    const ScaleFit &fit = fits[waits],
                   &wider = fits[waits || waits_for_group(ranked[0].parallel, is_mixture)];
    const double factor = std::exp(kDeviationsOfSources * fit.deviation(slopes[i]));
    const double more = std::log(step / static_cast<double>(ranked.front().step.value));
    intervals.push_back(
        {Nanoseconds(std::llround(step / factor)), Nanoseconds(std::llround(step * factor)),
         i > 0 && more > kDeviationsBelow90 * wider.deviation_between(slopes[0], slopes[i])});
  }
  return intervals;
}

void fill_intervals(const Job& job, const Profile* profile, int cores, SearchResult& result) {
  result.intervals = intervals_of(job, profile, cores, result.ranked);
  if (profile == nullptr || !result.best || !has_spreads(*profile)) return;
  const Plan& plan = *result.best;
  if (divides_layers(plan) && !cpus_run(plan)) return;
  constexpr std::size_t kMostInstructions = 200'000;
  constexpr int kDraws = 41;
  const Program run = program_of_run(plan);
  if (run.code.size() <= kMostInstructions)
    result.drawn_best = drawn_steps(plan, run, *profile, kDraws);
}

}  // namespace pipewright::planner
