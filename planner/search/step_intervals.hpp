// How well the steps of ranked configurations are known: by the estimate
// (docs/decisions/0054-intervals-of-steps.md), and by a profile.
#pragma once

#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/configurations/candidate.hpp"

namespace pipewright::planner {

/// So many deviations either side lie 90 % of the steps of published sources that nothing was
/// fitted to, each source counted once (docs/decisions/0094-blocking-launches.md); 1.645 would if
/// their logarithms were normal.
inline constexpr double kDeviationsOfSources = 1.75;

/// Of a configuration: between these the step lies with a chance of 90 %, and whether it is slower
/// than the first with the same chance.
struct StepInterval {
  Nanoseconds low, high;
  bool told_from_first = false;
};

/// By row, with the costs fitted to the job's measured steps, if it has any; empty where costs are
/// not estimated (estimated_architecture()). `ranked`: rows of its search, the fastest first;
/// `cores`: as in SearchOptions.
std::vector<StepInterval> intervals_of(const Job& job, const Profile* profile, int cores,
                                       const std::vector<Candidate>& ranked);

struct SearchResult;

/// Both kinds of its intervals, where rows are shown. Draws 41 steps of the best plan, and none of
/// one whose run has more than 200,000 instructions, or is not known.
void fill_intervals(const Job& job, const Profile* profile, int cores, SearchResult& result);

}  // namespace pipewright::planner
