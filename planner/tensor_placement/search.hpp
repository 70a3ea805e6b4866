// The placement of least time among those that fit into memory, with what no other goes below.
#pragma once

#include <optional>

#include "planner/tensor_placement/elimination.hpp"
#include "planner/tensor_placement/problem.hpp"

namespace pipewright::planner::tensor_placement {

struct FoundPlacement {
  /// Nothing where none was found that fits into memory.
  std::optional<Assignment> assignment = {};
  Totals totals = {};
  double bound_ns = 0;  // no placement that fits takes less
  /// What a placement needs at least; where none fits, at most what it was found to need.
  double least_bytes = 0;
  /// What the search took a byte to cost, in ns, for the bound.
  double ns_of_a_byte = 0;
};

/// Whether a bound and a time are the same but for rounding.
bool is_reached(double ns, double bound_ns);

/// `limit_bytes` for each device. Exact where tables stay small (elimination) and, where memory is
/// short, where branch and bound ends within its count of expansions.
FoundPlacement found_placement(const PlacementProblem& problem, double limit_bytes);

/// By each way in which the tensor may lie: what no placement that has it so goes below.
std::vector<double> bounds_of_homes(const PlacementProblem& problem, std::size_t tensor,
                                    double limit_bytes, double ns_of_a_byte);

}  // namespace pipewright::planner::tensor_placement
