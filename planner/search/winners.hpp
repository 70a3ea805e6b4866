// Synthesis for the winners of a search: the first rows of the ranking that differ in what is
// computed where. A winner gets another order for its stages where one is found that the simulator
// finds faster under the plan's own policy.
//
// Each winner is searched for with the same effort, counted in actions that are placed and timed,
// never in time: the result is the same on every machine, with any number of threads and in each
// process. The search runs under preset `ideal` with the update that ends each rank
// (planner/synthesis/synthesis.hpp), because that is fast. What it finds is judged as the rows are
// (planner/branches/evaluation.hpp), with the memory limits by rank. It begins with the row's own
// order.
#pragma once

#include <vector>

#include "planner/base/parallel.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// Rows of the ranking among which winners are looked for.
inline constexpr std::size_t kRowsForWinners = 10;

/// Whether the search looks at winners at all: the job leaves the schedule open. A job that names
/// schedules gets these, and where it names `auto` each configuration is synthesised by itself.
bool synthesises_winners(const Job& job);

/// What the orders of winners are made from: as for evaluate().
struct WinnersRequest {
  const Job& job;
  const ConfigurationCosts& costs;
  Bytes limit;
  int threads = 1;
  std::int64_t most_ns = 0;  // of an ordinary core's time, for all winners together; 0: no limit
  Meanwhile meanwhile = {};  // planner/base/parallel.hpp
};

/// `ranked`: best first. Adds the rows with a better order at its end, unsorted: schedule `auto`,
/// everything else as in the row that each is made from.
WinnersSynthesis synthesise_winners(const WinnersRequest& request, std::vector<Evaluation>& ranked);

}  // namespace pipewright::planner
