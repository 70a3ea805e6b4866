// The devices of a plan as a grid with named dimensions, row major: {"pp": 4}
// or {"dp": 2, "pp": 4}.
#pragma once

#include <string>
#include <vector>

#include "core/json.hpp"

namespace pipewright {

struct Mesh {
  std::vector<int> shape;
  std::vector<std::string> dim_names;
  std::vector<int> devices;  // row major, as many as the product of shape

  /// Size of a dimension, 1 if the mesh does not have it.
  int size(std::string_view dim) const;
  static Mesh pipeline(int ranks);
  /// Device of each pipeline rank, of the first replica where there are several.
  std::vector<int> devices_of_pipeline() const;
};
Mesh read_mesh(const JsonCursor& value);
Json to_json(const Mesh& mesh);

}  // namespace pipewright
