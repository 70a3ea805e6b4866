// A mesh of processes of any dimension, and where each of them stands in it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pipewright::spmd {

struct ProcessMesh {
  std::vector<int> shape;
  std::vector<std::string> dim_names;  // as many as the shape has dimensions
  std::vector<int> ranks;              // row major, as many as the product of the shape

  /// Ranks 0, 1, … in dimensions "d0", "d1", …
  static ProcessMesh of_shape(std::vector<int> shape);

  int dims() const { return static_cast<int>(shape.size()); }
  int size(int dim) const { return shape[static_cast<std::size_t>(dim)]; }
  /// What each dimension says of the process at `place`, which counts through `ranks`.
  std::vector<int> coordinates(std::size_t place) const;
  /// The places that differ from `place` along this dimension alone, with `place` itself, by their
  /// coordinate.
  std::vector<std::size_t> line(std::size_t place, int dim) const;

  bool operator==(const ProcessMesh&) const = default;
};

/// "d0", "d1", …
std::vector<std::string> names_of_dims(int dims);

inline constexpr int kMostMeshDims = 8, kMostMeshProcesses = 1 << 16;

/// Throws InputError: no dimension or more than 8, a size below 1, more than 65536 processes, as
/// many ranks or names as do not fit, a rank twice.
void require_mesh(const ProcessMesh& mesh);
/// "2x3".
std::string text_of(const ProcessMesh& mesh);

}  // namespace pipewright::spmd
