// Letters of tensors that are aligned at their last dimensions, where a dimension of size 1 is
// repeated.
#pragma once

#include <string>
#include <vector>

#include "core/spmd/layout.hpp"

namespace pipewright::spmd {

struct Broadcast {
  std::vector<std::string> inputs;
  std::string output;
  Shape shape;  // of the output
};

/// Throws InputError where two sizes differ and neither is 1.
Broadcast broadcast(const std::vector<Shape>& shapes);

}  // namespace pipewright::spmd
