// Where no configuration of a job is possible: the reason that is the nearest to possible, with its
// numbers, and what would do. What would do was searched for and found. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace pipewright::planner {

struct NearestPossible {
  /// Where only memory is missing: the one that misses least, and what it would take.
  std::optional<Candidate> candidate;
  std::vector<std::string> sentences;  // the nearest reason first
};

/// `nothing`: the result of search() for the job with `options`, in which nothing is possible.
NearestPossible nearest_possible(const Job& job, const Profile* profile,
                                 const SearchOptions& options, const SearchResult& nothing);

}  // namespace pipewright::planner
