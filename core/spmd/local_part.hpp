// What one process holds of a tensor.
#pragma once

#include "core/spmd/layout.hpp"

namespace pipewright::spmd {

struct LocalPart {
  Shape offset, shape;  // in elements of the whole tensor; an empty part has a size of 0
};

/// Of the process at `place` of the mesh. Shards are ceil(n / k) long; where several mesh
/// dimensions divide one dimension of the tensor, each divides what the ones before it left.
LocalPart local_part(const Tensor& tensor, const ProcessMesh& mesh, std::size_t place);

}  // namespace pipewright::spmd
