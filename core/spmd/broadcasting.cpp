#include "core/spmd/broadcasting.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/equation.hpp"

namespace pipewright::spmd {

Broadcast broadcast(const std::vector<Shape>& shapes) {
  std::size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  const std::string all = letters(rank);
  Broadcast notation{.inputs = {}, .output = std::string(rank, kSizeOne), .shape = Shape(rank, 1)};
  for (const Shape& shape : shapes) {
    const std::size_t first = rank - shape.size();
    std::string& own = notation.inputs.emplace_back(all.substr(first));
    for (std::size_t at = 0; at < shape.size(); ++at) {
      std::int64_t& size = notation.shape[first + at];
      if (shape[at] == 1) {
        own[at] = kSizeOne;
        continue;
      }
      if (size != 1 && size != shape[at]) {
        throw InputError("dimensions of " + std::to_string(size) + " and " +
                         std::to_string(shape[at]) + " elements cannot be one");
      }
      size = shape[at];
      notation.output[first + at] = own[at];
    }
  }
  return notation;
}

}  // namespace pipewright::spmd
