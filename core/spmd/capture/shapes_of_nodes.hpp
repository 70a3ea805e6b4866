// What nodes that move elements ask for: the same whether their values are known or computed.
#pragma once

#include "core/spmd/capture/node_reading.hpp"

namespace pipewright::spmd::capture {

std::int64_t elements_of(const Shape& shape);

/// Of Reshape, Flatten, Squeeze, Unsqueeze: the same elements in another shape.
bool only_regroups(const onnx::Node& node);
Shape regrouped(const NodeReading& node);

/// Of Slice: for each dimension its first element and how many, one after another or so far apart.
struct Range {
  std::int64_t first = 0, count = 0, step = 1;
};
std::vector<Range> sliced(const NodeReading& node);

/// The sizes along the axis of Split's outputs.
std::vector<std::int64_t> split_sizes(const NodeReading& node, std::size_t axis);

std::vector<std::size_t> permutation(const NodeReading& node);

/// Of shapes that repeat where they have size 1, aligned at the last dimensions.
Shape broadcast(const NodeReading& node, const Shape& one, const Shape& other);

}  // namespace pipewright::spmd::capture
