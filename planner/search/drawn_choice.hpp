// Which of the first rows of a search stands variance best: `tune --samples`. Rows are ranked by
// the step of typical times, in which no rank waits for one that happens to take longer; an order
// with no slack loses more to such waits than another.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/distribution.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

struct DrawnRow {
  std::size_t row = 0;  // of SearchResult::ranked
  Distribution steps;   // as drawn
};
struct DrawnChoice {
  std::vector<DrawnRow> rows;  // in the order of the table
  std::size_t best = 0;        // of these, by the mean of its steps, then as ranked
};

/// Rows that are drawn: at most so many, of those whose steps are at most so much longer than the
/// first one's.
inline constexpr std::size_t kMostDrawnRows = 8;
inline constexpr double kDrawnWithin = 0.1;

/// Draws so many steps of each of the first rows that CPUs run, or that divide no layers, from the
/// profile's spread, all with the same seeds, and makes the best of them result.best and its steps
/// result.drawn_best. Throws InputError where the profile has no spreads.
DrawnChoice choose_by_draws(const Job& job, const Profile& profile, int cores, std::int64_t samples,
                            SearchResult& result);

}  // namespace pipewright::planner
