// What may be measured next (docs/decisions/0049-measuring-search.md): configurations with what the
// fit to the measured steps says of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/measured/expectation.hpp"
#include "planner/search/measured_fit.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// A configuration in words, and where they stand.
struct ListedConfiguration {
  std::string text, file, place;
};

struct Prospect {
  Candidate candidate;        // planned layer by layer: with the step before the fit
  std::string configuration;  // text_of(candidate); of a listed one as it is listed
  Outlook outlook;
};

struct Prospects {
  MeasuredFit fit;
  SearchResult search;          // what was looked at; of listed configurations none
  std::vector<Prospect> list;   // the least predicted step first
  std::int64_t unlisted = 0;    // further ones that are possible
  double unlisted_seconds = 0;  // what none of those is predicted to beat
};

/// The configurations that are listed, or, where none are, the first of a search for named
/// schedules. Of `options` threads, cores, exhaustive, only_executable, budget and progress count.
/// Throws InputError as search() and fit_measured_steps() do, and with the place for a listed one
/// that is no configuration of this job.
Prospects prospects_of(const Job& job, const Profile* profile, const SearchOptions& options,
                       const std::vector<ListedConfiguration>& listed);

/// The plan of a configuration of this job, with the costs that its measured steps make.
/// `searched`: what the plan says of the search. The text is one that prospects_of() has given, or
/// a measured step's.
Plan plan_of_configuration(const Job& job, const Profile* profile, int cores,
                           const std::string& text, const SearchResult& searched);

}  // namespace pipewright::planner
