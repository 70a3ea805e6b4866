// Contexts of the estimate, one for each order in which the pipeline may go through a cluster's
// nodes.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "core/cluster/node_order.hpp"
#include "core/plan/job.hpp"
#include "planner/estimate/cost_scales.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/estimate/stage_estimate.hpp"

namespace pipewright::planner {

/// Immutable; any number of threads may ask.
class NodeOrderContexts {
 public:
  /// Throws InputError for a device without known rates.
  NodeOrderContexts(const Job& job, const Architecture& model, const CostScales& scales);

  /// The context with the machine's nodes in the setup's order.
  const EstimateContext& of(const ParallelSetup& setup) const { return of(setup.order.of_nodes); }
  const EstimateContext& of(const NodeOrder& order) const;
  /// For questions that do not depend on the order.
  const EstimateContext& any() const { return contexts_.front(); }
  /// The orders that the job allows.
  const std::vector<NodeOrder>& asked() const { return asked_; }

 private:
  std::vector<NodeOrder> orders_, asked_;
  std::vector<EstimateContext> contexts_;  // by orders_
};

/// Visits a setup in each order of the nodes that makes a difference: of the orders that put every
/// rank on nodes of the same rates, only in the first. One object for one enumeration.
class OrdersOfSetups {
 public:
  explicit OrdersOfSetups(const NodeOrderContexts& contexts) : contexts_(contexts) {}

  void visit(ParallelSetup setup, const SpaceVisitor& visitor);

 private:
  const std::vector<bool>& differ(const ParallelSetup& setup);

  const NodeOrderContexts& contexts_;
  /// By ranks, devices of a rank, replicas and rank order: for each asked order of the nodes,
  /// whether it differs from all before it.
  std::map<std::tuple<int, int, int, RankOrder>, std::vector<bool>> differ_;
};

}  // namespace pipewright::planner
