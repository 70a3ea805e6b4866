// The chunks of a pipeline: which of its parts each operator is in, and so on which stage and in
// which of the stage's chunks (decision 79).
#pragma once

#include "core/spmd/graph/process_meshes.hpp"

namespace pipewright::spmd {

/// Of a graph whose pipeline has a vpp_degree above 1; any other keeps what it has. Annotations of
/// chunks stay; meshes of layers move where they say only which stage comes first. Throws
/// InputError, with the names, where the pipeline cannot be.
void assign_chunks(const OperatorGraph& graph, GraphMeshes& meshes);

}  // namespace pipewright::spmd
