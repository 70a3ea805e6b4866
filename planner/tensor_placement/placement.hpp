// Automatic placement: how every operator of a graph computes and every tensor lies, so that a
// training step takes least time within each device's memory.
#pragma once

#include "core/spmd/graph/completion.hpp"
#include "planner/tensor_placement/search.hpp"

namespace pipewright::planner::tensor_placement {

/// Of one operator. Times in nanoseconds.
struct PlacedOperator {
  OperatorNanoseconds ns;
  /// Of reshards between what it makes and how that lies, and those that it is the first to take
  /// by; forward and backward.
  double communication_ns = 0;
  std::int64_t communication_bytes = 0;  // of the busiest process
  std::int64_t bytes = 0;  // that are kept for what it makes and for what it is the first to take
};

/// Of a tensor's gradient, against the direction of a reshard.
struct GradientReshard {
  std::size_t tensor = 0;
  bool is_made = false;  // to the operator that makes the tensor, else from those that take it
  std::vector<std::size_t> operators = {};
  spmd::Layout from = {}, to = {};
  spmd::ReshardPlan plan = {};
  double ns = 0;
};

struct GraphPlacement {
  /// Annotated, with reshards by these prices; as given where no placement was found.
  spmd::Completion completion;
  std::vector<double> reshard_ns;  // by reshard of the completion
  std::vector<GradientReshard> gradients;
  std::vector<PlacedOperator> operators;  // by operator
  FoundPlacement found;
  std::int64_t limit_bytes = 0;  // of each device

  bool is_found() const { return found.assignment.has_value(); }
  /// How much less than this placement another one could take, at most; 0: none takes less.
  double gap() const;
};

/// Annotations stay. `limit_bytes` is for each device. Throws InputError: annotations that
/// contradict each other, a graph on several meshes, ranks that the cluster does not have.
GraphPlacement placed(const spmd::OperatorGraph& graph, const Cluster& cluster,
                      std::int64_t limit_bytes);

/// The graph on a mesh of this shape with ranks from 0 on in place of its own. Throws InputError
/// where it has several, or annotations that do not fit.
spmd::OperatorGraph on_mesh(spmd::OperatorGraph graph, const std::vector<int>& shape);

/// How a tensor might lie, and what a step would take at least.
struct OtherHome {
  spmd::Layout layout;
  double least_ns = 0;
};

/// Of a tensor of a placement that was found, by time. Throws InputError where the graph has no
/// such tensor.
std::vector<OtherHome> homes_of(const spmd::OperatorGraph& graph, const Cluster& cluster,
                                const GraphPlacement& placement, const std::string& tensor);

}  // namespace pipewright::planner::tensor_placement
