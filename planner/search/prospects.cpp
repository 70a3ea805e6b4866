#include "planner/search/prospects.hpp"

#include <algorithm>
#include <cmath>

#include "planner/base/cores.hpp"
#include "planner/base/parallel.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"

namespace pipewright::planner {
namespace {

constexpr int kListed = 64;  // rows of a search that are weighed one by one

/// Everything that simulating one of a job's configurations needs.
struct Pricing {
  const Job& job;
  const Profile* profile;
  int cores;
};

Configuration configuration_of(const Pricing& by, const std::string& text) {
  return read_configuration(text, by.job, nullptr).configuration;
}

std::vector<Prospect> listed_prospects(const Pricing& by,
                                       const std::vector<ListedConfiguration>& listed) {
  const auto costs = costs_of_job(by.job, by.profile, by.cores);
  std::vector<Prospect> list(listed.size());
  for_each_index(list.size(), cores_of_this_machine(), [&](std::size_t i) {
    const auto& [text, file, place] = listed[i];
    const Configuration configuration = configuration_of_job(by.job, *costs, text, file, place);
    list[i].configuration = text;
    list[i].candidate = evaluate_any(by.job, *costs, configuration).candidate;
  });
  return list;
}

std::vector<Prospect> searched_prospects(const Pricing& by, SearchOptions options,
                                         Prospects& prospects) {
  options.keep = kListed;
  options.front = options.synthesis = false;
  options.journal = nullptr;
  options.share = {};
  prospects.search = search(by.job, by.profile, options);
  const SearchResult& found = prospects.search;
  std::vector<Prospect> list;
  for (const Candidate& candidate : found.ranked)
    list.push_back({candidate, text_of(candidate), {}});
  const auto slower = found.pruned.find(LeftOut::TooSlowForTable);
  const auto left_out = slower == found.pruned.end() ? 0 : slower->second;
  const auto listed = static_cast<std::int64_t>(list.size());
  prospects.unlisted = left_out + std::max<std::int64_t>(0, found.evaluated - listed);
  return list;
}

/// Says what the fit expects of each.
void look_out(const Pricing& by, const MeasuredFit& fit, bool is_estimated,
              std::vector<Prospect>& list) {
  std::vector<ScaleVector> slopes(list.size(), ScaleVector{1, 0, 0});
  if (is_estimated) {
    std::vector<Configuration> configurations;
    for (const Prospect& each : list)
      configurations.push_back(configuration_of(by, each.configuration));
    slopes = slopes_of(by.job, by.profile, by.cores, configurations, fit.times.scales);
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Candidate& candidate = list[i].candidate;
    const double scale = is_estimated ? 1 : fit.times.scales.time;
    list[i].outlook = {static_cast<double>(candidate.step.value) * 1e-9 * scale,
                       fit.times.deviation(slopes[i]),
                       chance_to_fit(fit.memory, static_cast<double>(candidate.peak_bytes.value),
                                     static_cast<double>(fit.memory_limit.value))};
  }
}

}  // namespace

Prospects prospects_of(const Job& job, const Profile* profile, const SearchOptions& options,
                       const std::vector<ListedConfiguration>& listed) {
  const Pricing by{job, profile, options.cores};
  Prospects prospects;
  prospects.fit = fit_measured_steps(job, profile, options.cores);
  prospects.list =
      listed.empty() ? searched_prospects(by, options, prospects) : listed_prospects(by, listed);
  const bool is_estimated = profile == nullptr && estimated_architecture(job);
  look_out(by, prospects.fit, is_estimated, prospects.list);
  std::stable_sort(
      prospects.list.begin(), prospects.list.end(),
      [](const Prospect& a, const Prospect& b) { return a.outlook.seconds < b.outlook.seconds; });
  if (prospects.unlisted > 0 && !prospects.list.empty())
    prospects.unlisted_seconds = prospects.list.back().outlook.seconds;
  return prospects;
}

Plan plan_of_configuration(const Job& job, const Profile* profile, int cores,
                           const std::string& text, const SearchResult& searched) {
  const auto costs = costs_of_job(job, profile, cores);
  const Configuration configuration = configuration_of({job, profile, cores}, text);
  SearchResult result;
  result.evaluated = searched.evaluated;
  result.pruned = searched.pruned;
  result.ranked = {evaluate_any(job, *costs, configuration).candidate};
  return plan_of_candidate(job, *costs, result, costs->memory_limit());
}

}  // namespace pipewright::planner
