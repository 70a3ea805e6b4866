// PaddlePaddle's cluster file (auto_parallel/static/cluster.py): machines with devices and links,
// rates in GB/s and gigaflops. Read as it is into a Cluster; what the file leaves open is assumed,
// and Cluster::assumed lists it. Pure.
#pragma once

#include "core/cluster/cluster.hpp"

namespace pipewright {

/// Such a file has "machines" and no schema.
bool is_paddle_cluster(const JsonCursor& document);

/// GPUs alone count as devices; machines that differ become kinds of nodes. Throws InputError for
/// unknown keys, machines without a GPU or with unequal numbers of them, GPUs of one machine that
/// differ, and links between devices that are not there.
Cluster read_paddle_cluster(const JsonCursor& document);

}  // namespace pipewright
