// The best ways to divide a model among devices, by the analytical estimate: every configuration of
// a space is estimated, or ruled out by a rule that cannot rule out a better one. Deterministic;
// pure functions of their arguments; seconds and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/estimate/parallel_space.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

struct ParallelCandidate {
  ParallelSetup setup;
  StepEstimate estimate;
  double peak_bytes = 0;  // of the fullest rank
  int fullest_rank = 0;
  std::string reason;  // what fills it
};

struct ParallelResult {
  /// Best first: by step, then by memory, then in the order of the space.
  std::vector<ParallelCandidate> ranked;
  /// Of all that fit, those that no other one beats in time and memory, fastest first; complete
  /// only where the search was exhaustive.
  std::vector<ParallelCandidate> front;
  std::int64_t configurations = 0;  // in the space
  std::int64_t estimated = 0;
  LeftOutCounts pruned;  // the others, by what ruled them out
};

/// The `keep` best. Unless `exhaustive`, a configuration that by its lower_bound() cannot be among
/// them is not estimated. Throws InputError for a space that asks for less than one of something.
ParallelResult search_parallel(const Architecture& model, const FrameworkTraits& framework,
                               const Machine& machine, const ParallelSpace& space, int keep = 10,
                               bool exhaustive = false);

/// No estimate of this setup is below it: the products of the busiest rank at the fitted rate,
/// without waves, memory or messages.
double lower_bound(const Architecture& model, const FrameworkTraits& framework,
                   const Machine& machine, const ParallelSetup& setup);

}  // namespace pipewright::planner
