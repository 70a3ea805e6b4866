// How much longer than others some devices take, and some samples: what a job's cluster.slow and
// sample_scales say of the ranks and micro-batches of a mesh. Immutable.
#pragma once

#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/job.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// A replica: how many times as long computations of its ranks take, and of its micro-batches.
struct UnevenReplica {
  int number = 0;
  std::vector<double> slowness;  // by pipeline rank
  std::vector<double> length;    // by micro-batch

  double total_length() const;
};

class UnevenWork {
 public:
  /// `is_estimated`: which devices a rank has, as the estimate lays them or as layer by layer.
  /// References `job`.
  UnevenWork(const Job& job, bool is_estimated) : job_(job), is_estimated_(is_estimated) {}

  /// A rank is as slow as its slowest device, a micro-batch as long as the mean of its samples:
  /// micro-batch k of replica d has those from (d · micro-batches + k) · size on.
  UnevenReplica replica(const ParallelSetup& mesh, int number) const;
  std::vector<UnevenReplica> all(const ParallelSetup& mesh) const;
  /// Those that may end last, the one with most to do first: where samples are alike, no other is
  /// as slow on every rank. Replicas wait for one another at the end of the step alone.
  std::vector<UnevenReplica> telling(const ParallelSetup& mesh) const;

  bool has_lengths() const { return !job_.sample_scales.empty(); }

 private:
  const Job& job_;
  bool is_estimated_;
};

/// What a stage computes, each action so many times as long, rounded up; I with W is B where it
/// was.
StageCosts stretched(const StageCosts& computations, double factor);

}  // namespace pipewright::planner
