#include "tools/input/named_cluster.hpp"

#include "core/base/error.hpp"

namespace pipewright::tools {

Cluster named_cluster(const std::string& name, int devices) {
  if (!name.ends_with(".json")) return cluster_preset(name, devices);
  if (devices > 0) throw InputError("--devices belongs to a preset; a cluster file has its own");
  const Json document = parse_json(read_text(name), name);
  return read_cluster(JsonCursor(document, name));
}

}  // namespace pipewright::tools
