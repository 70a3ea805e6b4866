// Which part of a mesh each layer of a model is on, where the mesh has a dimension "pp".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/spmd/process_mesh.hpp"

namespace pipewright::spmd {

/// The stages in their order: the ranks with one coordinate along this dimension, the others row
/// major. Throws InputError where the mesh has no such dimension.
std::vector<std::vector<int>> slices_along(const ProcessMesh& mesh, const std::string& dim_name);

struct LayerPlacement {
  int layers = 0;
  std::string schedule;           // 1F1B, GPIPE or VPP, in any case
  std::optional<int> vpp_degree;  // chunks of each stage; VPP alone
};

/// Ranks of each layer. Layers are divided over the stages, or over the chunks of VPP in their
/// order, as evenly as they can be, the first ones having one more. Throws InputError: no dimension
/// "pp", another schedule, VPP without a degree or with fewer layers than chunks.
std::vector<std::vector<int>> meshes_of_layers(const ProcessMesh& mesh,
                                               const LayerPlacement& placement);

}  // namespace pipewright::spmd
