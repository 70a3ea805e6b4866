// CostTable as a plan file writes it (docs/plan-format.md, "costs").
#pragma once

#include <vector>

#include "core/base/json.hpp"
#include "core/cluster/cluster.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/costs.hpp"

namespace pipewright {

/// What the table has to fit.
struct CostContext {
  int stages = 1;
  const Cluster& cluster;
  const std::vector<int>& device_of_rank;
  ReplicaShape shape;  // of the replicas that are ranks of the Program
};

CostTable read_costs(const JsonCursor& value, const CostContext& context);
/// Routes that are those of set_routes() are written as "routes": "cluster", the others edge by
/// edge; "collectives": "cluster" says that the cluster's prices count.
Json costs_json(const CostTable& costs, const CostContext& context);

}  // namespace pipewright
