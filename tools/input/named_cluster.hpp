// A cluster as commands are given it.
#pragma once

#include <string>

#include "core/cluster/cluster.hpp"

namespace pipewright::tools {

/// A preset, with so many devices (0: as many as it has by itself), or a cluster.json (a name that
/// ends so). Throws InputError.
Cluster named_cluster(const std::string& name, int devices = 0);

}  // namespace pipewright::tools
