// Cases of layers on meshes and of cut clusters, in the notation of PaddlePaddle's tests, and their
// answers.
#pragma once

#include "core/base/json.hpp"
#include "core/spmd/cluster_partition.hpp"
#include "core/spmd/layer_meshes.hpp"

namespace pipewright::spmd {

struct LayerCase {
  ProcessMesh mesh;
  LayerPlacement placement;
};

/// A mesh as lists of lists of ranks; its dimensions are "d0", "d1", … unless they have names.
/// Throws InputError.
ProcessMesh read_nested_mesh(const JsonCursor& value, std::vector<std::string> dim_names = {});

/// The list "layer_to_mesh_cases" of a document.
std::vector<LayerCase> read_layer_cases(const JsonCursor& document);
/// {"0": [0, 1], …}: the ranks of each layer, or {"raises": "…"}.
Json answer_to(const LayerCase& layer_case);

/// Of a document's "cluster_partition": for each key "2x8" of "device_meshes" the ways to cut that
/// cluster into stages, for each key "(2, 8)" of "process_meshes" the shapes of its meshes.
Json cluster_answers(const JsonCursor& document);

}  // namespace pipewright::spmd
