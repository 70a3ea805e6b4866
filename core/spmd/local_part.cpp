#include "core/spmd/local_part.hpp"

#include <algorithm>

namespace pipewright::spmd {

LocalPart local_part(const Tensor& tensor, const ProcessMesh& mesh, std::size_t place) {
  LocalPart part{.offset = Shape(tensor.shape.size()), .shape = tensor.shape};
  const std::vector<int> at = mesh.coordinates(place);
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    for (const int dim : tensor.layout.dims[axis]) {
      const std::int64_t size = part.shape[axis], pieces = mesh.size(dim);
      const std::int64_t length = (size + pieces - 1) / pieces;
      const std::int64_t begin = std::min(size, length * at[static_cast<std::size_t>(dim)]);
      part.offset[axis] += begin;
      part.shape[axis] = std::min(length, size - begin);
    }
  }
  return part;
}

}  // namespace pipewright::spmd
