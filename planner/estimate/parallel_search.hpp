// The best ways to divide a model among devices, by the analytical estimate: every configuration of
// a space is looked at or ruled out by a rule that cannot rule out a better one. Deterministic;
// pure functions of their arguments; seconds and bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

/// What is tried. An empty list is open: powers of two and divisors for tp, pp, cp and ep; 1, 2, 4,
/// 8 … for chunks and micro-batch sizes; all for the rest. Data parallel is what is left.
struct ParallelSpace {
  int devices = 1, global_batch = 1;
  std::vector<int> tensor, pipeline, data, chunks, experts, context, micro_batch_size, zero;
  std::vector<LayerRecompute> recompute;
  std::vector<bool> sequence_parallel;
  bool overlap_gradients = false;  // of every setup
  /// Share of a device's memory that is left for fragments and libraries.
  double margin = 0.06;
};

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
  std::map<std::string, std::int64_t> pruned;  // the others, by what ruled them out
};

/// The `keep` best. Unless `exhaustive`, what by lower_bound() cannot be among them is not
/// estimated. Throws InputError for a space that asks for less than one of something.
ParallelResult search_parallel(const Architecture& model, const FrameworkTraits& framework,
                               const Machine& machine, const ParallelSpace& space, int keep = 10,
                               bool exhaustive = false);

/// No estimate of this setup is below it: the products of the busiest rank at the fitted rate,
/// without waves, memory or messages.
double lower_bound(const Architecture& model, const Machine& machine, const ParallelSetup& setup);

/// "tp 8, pp 16, dp 8, micro-batches of 1, selective recompute, sequence parallel, ZeRO 1".
std::string describe(const ParallelSetup& setup);

}  // namespace pipewright::planner
