#include "planner/search/measured_fit.hpp"

#include <cmath>
#include <cstdint>

#include "core/base/error.hpp"
#include "planner/base/cores.hpp"
#include "planner/base/number_text.hpp"
#include "planner/base/parallel.hpp"
#include "planner/search/job_costs.hpp"

namespace pipewright::planner {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr Bytes kRoomEnough{std::int64_t{1} << 60};

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(std::llround(seconds * 1e9)); }

/// "1.13", of one row with the digits that a plan has always had.
std::string times_text(double scale) {
  return "times " +
         std::to_string(static_cast<double>(std::llround(scale * 1000)) / 1000).substr(0, 5);
}

/// Where every scale is 1.
Job unfitted(Job job) {
  job.measured_steps.clear();
  return job;
}

}  // namespace

CostScales MeasuredFit::scales() const {
  CostScales scales = times.scales;
  scales.memory = memory.scale;
  return scales;
}

std::string MeasuredFit::summary() const {
  if (steps.empty()) return "";
  const CostScales all = scales();
  if (steps.size() == 1 && steps.front().measured.ran()) {
    const std::string by = " by the measured step of " + steps.front().measured.configuration;
    return times_text(all.time) + by +
           (all.memory == 1 ? "" : ", memory " + times_text(all.memory));
  }
  std::string text = "fitted to " + count_of(static_cast<int>(steps.size()), "measured step");
  const std::string scaled[] = {"", "messages ", "launches "};
  const double by[] = {all.time, all.messages, all.launches};
  for (int k = 0; k < times.fitted; ++k)
    text += (k == 0 ? ": " : ", ") + scaled[k] + times_text(by[k]);
  if (all.memory != 1)
    text += (times.fitted == 0 ? ": memory " : ", memory ") + times_text(all.memory);
  return text;
}

std::string MeasuredFit::brief() const {
  if (steps.empty()) return "";
  if (steps.size() == 1 && steps.front().measured.ran())
    return times_text(times.scales.time) + " by a measured step";
  return "fitted to " + count_of(static_cast<int>(steps.size()), "measured step");
}

std::vector<Priced> priced(const Job& job, const Profile* profile, int cores,
                           const std::vector<Configuration>& configurations,
                           const CostScales& scales) {
  const auto model = profile == nullptr ? estimated_architecture(job) : std::nullopt;
  const Job plain = unfitted(job);
  const auto costs = model ? uneven_configurations(
                                 plain, estimated_configurations(plain, *model, {scales, "", ""}))
                           : costs_of_job(plain, profile, cores);
  std::vector<Priced> prices(configurations.size());
  for_each_index(prices.size(), cores_of_this_machine(), [&](std::size_t i) {
    const Evaluation evaluation = evaluate_any(plain, *costs, configurations[i]);
    if (evaluation.pruned) {
      throw InputError("the configuration " + describe(unpriced(configurations[i])) +
                       " has no predicted time: it " + sentence_of(*evaluation.pruned));
    }
    const Candidate& candidate = evaluation.candidate;
    prices[i] = {
        static_cast<double>(candidate.step.value) * kNanosecond * (model ? 1 : scales.time),
        static_cast<double>(candidate.peak_bytes.value)};
  });
  return prices;
}

std::vector<ScaleVector> slopes_of(const Job& job, const Profile* profile, int cores,
                                   const std::vector<Configuration>& configurations,
                                   const CostScales& scales) {
  // An order that is planned for little memory may change with the costs, and its step jump.
  Job roomy = job;
  roomy.strategy.memory_limit = kRoomEnough;
  return slopes_at(scales, [&](const CostScales& moved) {
    std::vector<double> seconds;
    for (const Priced& each : priced(roomy, profile, cores, configurations, moved))
      seconds.push_back(each.seconds);
    return seconds;
  });
}

Evaluation evaluate_any(const Job& job, const ConfigurationCosts& costs,
                        const Configuration& configuration) {
  const Branch branch = branch_of(configuration, costs);
  Evaluation evaluation = evaluate(job, costs, branch, costs.memory_limit());
  if (evaluation.pruned) evaluation = evaluate(job, costs, branch, Bytes(0));
  return evaluation;
}

Configuration configuration_of_job(const Job& job, const ConfigurationCosts& costs,
                                   const std::string& text, const std::string& file,
                                   const std::string& place) {
  const auto refused = [&](const std::string& why) {
    return InputError(file, place, "\"" + text + "\" is no configuration of this job: " + why);
  };
  NamedConfiguration named;
  try {
    named = read_configuration(text, job, nullptr);
  } catch (const InputError& error) {
    throw refused(error.message());
  }
  if (const auto rule = broken_rule(named, job, costs)) throw refused(*rule);
  const Evaluation evaluation = evaluate_any(job, costs, named.configuration);
  if (evaluation.pruned) throw refused("it " + sentence_of(*evaluation.pruned));
  return named.configuration;
}

MeasuredFit fit_to(const std::vector<MeasuredStep>& steps, Bytes memory_limit,
                   const PriceSteps& price) {
  MeasuredFit fit;
  fit.memory_limit = memory_limit;
  std::vector<double> seconds;
  for (const MeasuredStep& step : steps)
    if (step.ran()) seconds.push_back(static_cast<double>(step.step.value) * kNanosecond);
  fit.times = fit_scales(seconds, [&](const CostScales& scales) {
    const std::vector<Priced> prices = price(scales);
    std::vector<double> said;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i].ran()) said.push_back(prices[i].seconds);
    return said;
  });
  const std::vector<Priced> prices = price(fit.times.scales);
  std::vector<MemoryRow> rows;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    rows.push_back(
        {prices[i].peak_bytes, static_cast<double>(steps[i].peak.value), steps[i].ran()});
  }
  fit.memory = fit_memory(rows, static_cast<double>(memory_limit.value));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    fit.steps.push_back({steps[i], nanoseconds(prices[i].seconds),
                         Bytes(std::llround(prices[i].peak_bytes * fit.memory.scale))});
  }
  return fit;
}

MeasuredFit fit_measured_steps(const Job& job, const Profile* profile, int cores) {
  const Job plain = unfitted(job);
  const auto costs = costs_of_job(plain, profile, cores);
  std::vector<Configuration> configurations;
  for (const MeasuredStep& step : job.measured_steps) {
    configurations.push_back(
        configuration_of_job(plain, *costs, step.configuration, step.file, step.pointer));
  }
  return fit_to(job.measured_steps, costs->memory_limit(), [&](const CostScales& scales) {
    return priced(plain, profile, cores, configurations, scales);
  });
}

}  // namespace pipewright::planner
