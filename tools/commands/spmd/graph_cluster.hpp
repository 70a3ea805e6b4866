// The cluster that a graph is priced on.
#pragma once

#include "core/cluster/cluster.hpp"
#include "core/spmd/graph/graph.hpp"
#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

/// Of --cluster; a preset comes with as many nodes as the meshes need.
Cluster cluster_for(const Arguments& arguments, const spmd::OperatorGraph& graph);

}  // namespace pipewright::tools
