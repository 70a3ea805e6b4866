#include "exec/layers/image_ops.hpp"

#include <algorithm>

#include "core/model/image.hpp"

namespace pipewright::exec {

ImageShape ConvShape::out() const {
  return {filters, window_places(in.height, window), window_places(in.width, window)};
}

int ConvShape::together() const {
  constexpr int kLeastColumns = 256;  // a narrower product wastes most of its time on the weights
  return std::max(1, std::min(kLeastColumns / std::max(1, out().pixels()), images));
}

std::size_t conv2d_scratch(const ConvShape& shape) {
  const auto columns =
      static_cast<std::size_t>(shape.out().pixels()) * static_cast<std::size_t>(shape.together());
  const int gathered = shape.together() > 1 ? shape.filters / shape.groups : 0;
  return columns * static_cast<std::size_t>(shape.patch() + gathered);
}

ImageShape PoolShape::out() const {
  return {in.channels, window_places(in.height, window), window_places(in.width, window)};
}

}  // namespace pipewright::exec
