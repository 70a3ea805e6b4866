#include "tools/commands/spmd/graph_cluster.hpp"

#include <algorithm>

#include "tools/input/named_cluster.hpp"

namespace pipewright::tools {

Cluster cluster_for(const Arguments& arguments, const spmd::OperatorGraph& graph) {
  int ranks = 1;
  for (const spmd::NamedMesh& named : graph.meshes) {
    for (const int rank : named.mesh.ranks) ranks = std::max(ranks, rank + 1);
  }
  const std::string name = arguments.text_or("--cluster", "dgx-a100");
  if (name.size() > 5 && name.substr(name.size() - 5) == ".json") return named_cluster(name);
  const int whole = name == "local-cpu" ? ranks : (ranks + 7) / 8 * 8;
  return named_cluster(name, whole);
}

}  // namespace pipewright::tools
