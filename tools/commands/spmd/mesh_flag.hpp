// The flag --mesh of graphs: sizes of the dimensions of a mesh.
#pragma once

#include <string>
#include <vector>

namespace pipewright::tools {

/// "2x4". Throws InputError.
std::vector<int> mesh_shape(const std::string& text);

}  // namespace pipewright::tools
