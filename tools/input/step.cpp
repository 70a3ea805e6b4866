#include "tools/input/step.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "sim/engine.hpp"
#include "tools/cli/figures.hpp"
#include "tools/input/trace_program.hpp"
#include "traces/analysis/overhead_causes.hpp"

namespace pipewright::tools {

Step traced_step(ChosenStep chosen) {
  const traces::TraceTimeline& trace = chosen.joined.trace;
  const std::string others =
      chosen.files > 1 ? " and " + std::to_string(chosen.files - 1) + " more" : "";
  TraceProgram read = program_of_trace(trace);
  Step step{.title = trace.source + others,
            .program = std::move(read.program),
            .timeline = std::move(read.timeline)};
  for (const char* key : {"schedule", "costs", "policy", "clocks"}) {
    const auto known = trace.metadata.find(key);
    if (known != trace.metadata.end())
      step.facts.push_back(std::string(key) + ": " + known->second);
  }
  step.figures = figures_of(step.program, step.timeline, step.costs);
  for (const auto& rank : trace.ranks) step.ranks.push_back(rank.rank);
  step.read = std::move(chosen);
  return step;
}

void refuse_unwhole(const Subject& subject) {
  if (subject.problems.empty()) return;
  const std::string& problem = subject.problems.front();
  const bool names_file = problem.starts_with(subject.source);
  throw InputError(names_file ? "" : subject.source, "", problem + "; see pipewright check");
}

Step simulated_step(Subject subject) {
  refuse_unwhole(subject);
  sim::Result result = sim::simulate(subject.program, subject.costs);
  if (!result.finished) {
    throw InputError(subject.source, "",
                     "gets stuck under policy " + policy_text(subject.program.policy) +
                         "; see pipewright check");
  }
  Step step{.title = subject.title + " (simulated)",
            .facts = lines_about(subject),
            .program = std::move(subject.program),
            .timeline = std::move(result.timeline),
            .costs = std::move(subject.costs)};
  step.figures = figures_of(step.program, step.timeline, step.costs);
  for (int r = 0; r < step.program.ranks(); ++r) step.ranks.push_back(r);
  step.order = std::move(subject.order);
  return step;
}

traces::Times times_of(const Step& step) {
  return step.read ? traces::Times::Measured : traces::Times::Simulated;
}

traces::BubbleReport bubbles_of(const Step& step) {
  traces::BubbleReport report = traces::explain_bubbles(step.program, step.timeline);
  if (step.read) traces::explain_overhead(step.read->joined.trace, report);
  return report;
}

Straggler straggler_of(const Figures& figures) {
  Straggler straggler;
  double sum = 0;
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    sum += static_cast<double>(figures.ranks[r].busy_ns);
    if (figures.ranks[r].busy_ns > figures.ranks[straggler.row].busy_ns) straggler.row = r;
  }
  const double mean = sum / static_cast<double>(std::max<std::size_t>(1, figures.ranks.size()));
  if (mean > 0) {
    straggler.above_mean = static_cast<double>(figures.ranks[straggler.row].busy_ns) / mean - 1;
  }
  return straggler;
}

std::string straggler_text(const Step& step) {
  constexpr double kWorthSaying = 0.01;
  const Straggler straggler = straggler_of(step.figures);
  if (straggler.above_mean <= kWorthSaying) return "";
  return "rank " + std::to_string(step.ranks[straggler.row]) +
         " computes longest: " + percent_text(straggler.above_mean) +
         " more than the mean; move work away from it";
}

}  // namespace pipewright::tools
