// What collectives take on a cluster: the section "collectives" of its file.
#pragma once

#include "core/base/json.hpp"
#include "core/cluster/cluster.hpp"
#include "core/costs/collective_model.hpp"

namespace pipewright {

/// The terms of a model, or measured rows (core/costs/collective_rows.hpp), which are fitted.
/// Throws InputError with file and pointer.
CollectiveModel read_collectives(const JsonCursor& section, int devices_per_node);
Json to_json(const CollectiveModel& model);

/// The cluster's model; between nodes by its ports, where the model does not say. The cluster must
/// have one.
CollectiveModel collectives_on(const Cluster& cluster);

/// Prices by the cluster's model, if it has one, for ranks on these devices; else none.
void set_collectives(CostTable& costs, const Cluster& cluster,
                     const std::vector<int>& device_of_rank);

}  // namespace pipewright
