#include "planner/search/closed_fit.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace {

ParallelSetup setup_of(const Job& job, const Machine& machine, const MeasuredStep& step) {
  const auto refused = [&](const std::string& why) {
    return InputError(step.file, step.pointer,
                      "\"" + step.configuration + "\" is no configuration of this job: " + why);
  };
  NamedConfiguration named;
  try {
    named = read_configuration(step.configuration, job, nullptr);
  } catch (const InputError& error) {
    throw refused(error.message());
  }
  for (const std::string& why : {named.too_many_devices, named.other_batch})
    if (!why.empty()) throw refused(why);
  const std::string_view schedule = named.configuration.schedule->name;
  const ParallelSetup& setup = named.configuration.parallel;
  if (schedule != "1f1b" && schedule != "interleaved" && setup.pipeline > 1)
    throw refused("estimate knows 1f1b and interleaved; tune has all schedules");
  if (setup.recompute.by_stage) throw refused("estimate knows no recompute by stage");
  if (const auto rule = refusal(*job.architecture, machine, setup)) throw refused(rule->sentence);
  return setup;
}

double peak_bytes(const std::vector<RankBytes>& ranks) {
  double most = 0;
  for (const RankBytes& rank : ranks) most = std::max(most, rank.peak());
  return most;
}

void scale(StepEstimate& estimate, double by) {
  for (double* part :
       {&estimate.step, &estimate.pipeline, &estimate.gradient_reduction, &estimate.tied_reduction,
        &estimate.update, &estimate.busy, &estimate.transfers})
    *part *= by;
  for (double& rank : estimate.rank_seconds) rank *= by;
}

}  // namespace

MeasuredFit fit_closed_estimate(const Job& job, const FrameworkTraits& framework,
                                const ParallelSpace& space) {
  const Machine machine = machine_of(job.cluster);
  const Architecture& model = *job.architecture;
  double limit = usable_bytes(space, machine.nodes.front());
  for (const NodeRates& node : machine.nodes) limit = std::min(limit, usable_bytes(space, node));
  std::vector<ParallelSetup> setups;
  for (const MeasuredStep& step : job.measured_steps)
    setups.push_back(setup_of(job, machine, step));
  return fit_to(job.measured_steps, Bytes(static_cast<std::int64_t>(limit)),
                [&](const CostScales& scales) {
                  const FrameworkTraits traits = scaled(framework, scales);
                  const Machine links = scaled(machine, scales);
                  std::vector<Priced> prices;
                  for (const ParallelSetup& setup : setups) {
                    prices.push_back({scales.time * estimate_step(model, traits, links, setup).step,
                                      peak_bytes(estimate_memory(model, framework, setup))});
                  }
                  return prices;
                });
}

ParallelResult search_fitted(const Job& job, const FrameworkTraits& framework,
                             const ParallelSpace& space, const MeasuredFit& fit, int keep,
                             bool exhaustive) {
  const CostScales scales = fit.scales();
  Machine machine = scaled(machine_of(job.cluster), scales);
  // As if devices were smaller by as much as a configuration takes more.
  for (NodeRates& node : machine.nodes) node.device.memory_bytes /= scales.memory;
  ParallelResult result = search_parallel(*job.architecture, scaled(framework, scales), machine,
                                          space, keep, exhaustive);
  for (auto* candidates : {&result.ranked, &result.front}) {
    for (ParallelCandidate& candidate : *candidates) {
      scale(candidate.estimate, scales.time);
      candidate.peak_bytes *= scales.memory;
    }
  }
  return result;
}

}  // namespace pipewright::planner
