// The contiguous partition of an operator graph over accelerators and CPUs whose largest device
// load is least, with a proof. Pure functions; the time is exponential only in the graph's width.
//
// The model is that of Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph
// Operators" (NeurIPS 2020): devices stand in a pipeline, so that what the first i of them hold is
// an ideal of the forward order; a colour is on one device; an accelerator's nodes fit its memory
// and each may run there; the load is as device_load() says. Their exact algorithm fills, for every
// pair of nested ideals, a table of devices used. This one fills the same table, but for a
// threshold U that starts at a lower bound and rises until a partition fits:
// - a stage grows from its ideal element by element, each set met once, and is cut off as soon as
//   what can never leave its load (latency, nets that reach back into the ideal) passes U;
// - a table entry is dropped when the work left after it exceeds what the devices left can do
//   within U, or when another entry of the same ideal has used no more devices and has no larger
//   load.
// Neither loses a partition with all loads <= U, so the first U at which one is found gives the
// optimum, and the proof is that the table is then complete below it.
//
// A graph with too many ideals is cut along topological orders
// (planner/graph_partition/chains.hpp), the best of several: the same table over the ideals of one
// order, with a lower bound that is not its own proof.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/graph_partition/instance.hpp"

namespace pipewright::planner {

struct GraphPartition {
  double largest_load = 0;
  /// No partition has a smaller largest load; equal to largest_load where that is the optimum.
  double lower_bound = 0;
  std::vector<DeviceShare> devices;  // in pipeline order, only those that hold something
  std::int64_t elements = 0, ideals = 0;
  std::int64_t stages_tried = 0;  // stages grown, over all thresholds
};

struct GraphPartitionLimits {
  int ideals = 2'000'000;
};

struct GraphPartitionAnswer {
  std::optional<GraphPartition> partition;
  /// All ideals were looked at: the partition is optimal, or, where there is none, none exists.
  bool exact = true;
};

GraphPartitionAnswer best_graph_partition(const OperatorGraph& graph,
                                          const GraphPartitionLimits& limits = {});

/// The optimum. nullopt: no partition fits the accelerators' memory. Throws InputError beyond the
/// limits.
std::optional<GraphPartition> optimal_graph_partition(const OperatorGraph& graph,
                                                      const GraphPartitionLimits& limits = {});

}  // namespace pipewright::planner
