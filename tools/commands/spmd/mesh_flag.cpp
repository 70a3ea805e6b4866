#include "tools/commands/spmd/mesh_flag.hpp"

#include <algorithm>

#include "core/spmd/graph/graph_json.hpp"
#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

std::vector<int> mesh_shape(const std::string& text) {
  std::vector<int> shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    shape.push_back(static_cast<int>(parse_integer(text.substr(begin, end - begin), "--mesh", 1,
                                                   static_cast<int>(spmd::kMostMeshRanks))));
    begin = end + 1;
  }
  return shape;
}

}  // namespace pipewright::tools
