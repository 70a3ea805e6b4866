// The table of optimal_graph_partition(): for each ideal and each number of CPUs and accelerators
// used, the least largest load with which those devices can hold the ideal, as far as it is at most
// a threshold. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/graph_partition/elements.hpp"
#include "planner/graph_partition/ideals.hpp"

namespace pipewright::planner {

/// What the search asks of every ideal and element, computed once.
struct StageProblem {
  ElementOrder order;
  IdealLattice lattice;
  int accelerators = 0, cpus = 0;
  double accelerator_bytes = 0;
  /// Accelerator latency that is still to do after each ideal; elements that a CPU would do in no
  /// time, or that no accelerator can do, count as nothing.
  std::vector<double> work_after;
  /// Most work, counted that way, that a CPU does in one unit of time.
  double cpu_rate = 0;
};

struct StageTable {
  int uses = 0;                              // entries of an ideal: (cpus + 1) * (accelerators + 1)
  std::vector<double> load;                  // infinite: not within the threshold
  std::vector<int> came_from;                // ideal before the last stage
  std::vector<std::uint8_t> on_accelerator;  // the last stage is on one
  std::int64_t stages_tried = 0;
};

/// Entry of an ideal: cpus_used * (accelerators + 1) + accelerators_used.
StageTable fill_stage_table(const StageProblem& problem, double threshold);

}  // namespace pipewright::planner
