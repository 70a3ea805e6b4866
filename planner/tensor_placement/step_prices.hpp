// What the steps of a graph's training take on a cluster: operators, forward and back, and moves.
#pragma once

#include "core/spmd/graph/training_steps.hpp"
#include "planner/tensor_placement/mesh_prices.hpp"
#include "planner/tensor_placement/operator_work.hpp"

namespace pipewright::planner::tensor_placement {

/// All in nanoseconds, on the first process of a mesh, which has the largest parts; of an exchange
/// on the process whose messages take longest.
class StepPrices {
 public:
  /// Rank r of a mesh is device r. All have to outlive it. Throws InputError for a rank that has no
  /// device.
  StepPrices(const spmd::OperatorGraph& completed, const spmd::TrainingSteps& steps,
             const Cluster& cluster);

  OperatorNanoseconds forward(const spmd::TrainingStep& step) const;
  /// Of these gradients of the operator's inputs, by place.
  double backward(const spmd::TrainingStep& step, std::vector<bool> gradients) const;
  /// One step of a Move's plan.
  double move(const spmd::TrainingStep& step, std::size_t place) const;

  /// A training step without its update, nothing beside anything else: what a placement minimises.
  double whole() const;

 private:
  const spmd::TrainingArray& array(const spmd::ArrayPlace& at) const { return steps_.arrays[*at]; }
  double exchange(const spmd::ReshardStep& step, std::int64_t element_bytes) const;

  const spmd::OperatorGraph& graph_;
  const spmd::TrainingSteps& steps_;
  const Cluster& cluster_;
  std::vector<MeshPrices> prices_;  // by mesh
};

}  // namespace pipewright::planner::tensor_placement
