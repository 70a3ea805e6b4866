#include "core/spmd/capture/shapes_of_nodes.hpp"

#include <algorithm>
#include <numeric>

namespace pipewright::spmd::capture {
namespace {

/// 0 keeps a size, unless allowzero says otherwise; -1 is what is left.
Shape reshaped(const NodeReading& node) {
  const Shape& from = node.input(0).shape;
  Shape to = node.integers(1);
  std::int64_t known = 1;
  std::optional<std::size_t> open;
  if (to.size() > 8) node.fail("has a tensor of more than 8 dimensions");
  for (std::size_t at = 0; at < to.size(); ++at) {
    if (to[at] == 0 && node.attribute("allowzero", 0) == 0 && at < from.size()) to[at] = from[at];
    if (to[at] == -1 && !open) {
      open = at;
      continue;
    }
    if (to[at] < 0 || (to[at] > 0 && known > elements_of(from) / to[at])) {
      node.fail("asks for another number of elements than it has");
    }
    known *= to[at];
  }
  if (open) to[*open] = known > 0 ? elements_of(from) / known : 0;
  return to;
}

Shape flattened(const NodeReading& node) {
  const Shape& from = node.input(0).shape;
  const std::int64_t given = node.attribute("axis", 1);
  const bool is_end = given == static_cast<std::int64_t>(from.size());
  const std::size_t axis = is_end ? from.size() : node.axis(given, from.size());
  const auto middle = from.begin() + static_cast<std::ptrdiff_t>(axis);
  return {elements_of(Shape(from.begin(), middle)), elements_of(Shape(middle, from.end()))};
}

Shape squeezed(const NodeReading& node) {
  const Shape& from = node.input(0).shape;
  const auto given = node.integers_of("axes", 1);
  const std::set<std::size_t> axes = node.axes(given.value_or(Shape()), from.size());
  Shape to;
  for (std::size_t at = 0; at < from.size(); ++at) {
    const bool goes = given ? axes.count(at) > 0 : from[at] == 1;
    if (goes && from[at] != 1) node.fail("squeezes a dimension that has not one element");
    if (!goes) to.push_back(from[at]);
  }
  return to;
}

Shape unsqueezed(const NodeReading& node) {
  const Shape& from = node.input(0).shape;
  const auto given = node.integers_of("axes", 1);
  if (!given) node.fail("has no axes");
  const std::size_t rank = from.size() + given->size();
  const std::set<std::size_t> axes = node.axes(*given, rank);
  Shape to;
  std::size_t next = 0;
  for (std::size_t at = 0; at < rank; ++at) to.push_back(axes.count(at) > 0 ? 1 : from[next++]);
  return to;
}

}  // namespace

std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool only_regroups(const onnx::Node& node) {
  return node.type == "Reshape" || node.type == "Flatten" || node.type == "Squeeze" ||
         node.type == "Unsqueeze";
}

Shape regrouped(const NodeReading& node) {
  const std::string& type = node.node().type;
  const Shape to = type == "Reshape"   ? reshaped(node)
                   : type == "Flatten" ? flattened(node)
                   : type == "Squeeze" ? squeezed(node)
                                       : unsqueezed(node);
  if (elements_of(to) != elements_of(node.input(0).shape)) {
    node.fail("asks for another number of elements than it has");
  }
  return to;
}

std::vector<Range> sliced(const NodeReading& node) {
  const Shape& shape = node.input(0).shape;
  std::vector<Range> ranges;
  for (const std::int64_t size : shape) ranges.push_back({0, size, 1});
  const auto starts = node.integers_of("starts", 1), ends = node.integers_of("ends", 2);
  const auto steps = node.integers_of("steps", 4);
  auto axes = node.integers_of("axes", 3);
  if (!starts || !ends) node.fail("has no starts and ends");
  if (!axes) {
    axes.emplace(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  const bool fits = ends->size() == starts->size() && axes->size() == starts->size() &&
                    (!steps || steps->size() == starts->size());
  if (!fits) node.fail("has not as many ends, axes and steps as starts");
  for (std::size_t at = 0; at < starts->size(); ++at) {
    const std::size_t axis = node.axis((*axes)[at], shape.size());
    const std::int64_t size = shape[axis], step = steps ? (*steps)[at] : 1;
    if (step == 0 || step < -size - 1) node.fail("steps by 0, or further than its dimension");
    // Forward from 0 to size, backward from size - 1 to -1.
    const std::int64_t least = step > 0 ? 0 : -1;
    const auto place = [&](std::int64_t given) {
      return std::clamp<std::int64_t>(given < 0 ? given + size : given, least, size + least);
    };
    const std::int64_t first = place((*starts)[at]), end = place((*ends)[at]);
    const std::int64_t length = std::max<std::int64_t>(0, step > 0 ? end - first : first - end);
    const std::int64_t apart = step > 0 ? step : -step;
    ranges[axis] = {first, length == 0 ? 0 : 1 + (length - 1) / apart, step};
  }
  return ranges;
}

std::vector<std::int64_t> split_sizes(const NodeReading& node, std::size_t axis) {
  const std::int64_t size = node.input(0).shape[axis];
  if (const auto given = node.integers_of("split", 1)) {
    std::int64_t left = size;
    for (const std::int64_t part : *given) {
      if (part < 1 || part > left) node.fail("its parts are not as many as it has");
      left -= part;
    }
    if (left != 0) node.fail("its parts are not as many as it has");
    return *given;
  }
  const auto parts = static_cast<std::int64_t>(node.node().outputs.size());
  if (parts == 0 || parts > size) node.fail("has more outputs than elements to split");
  std::vector<std::int64_t> sizes;
  const std::int64_t each = (size + parts - 1) / parts;
  for (std::int64_t left = size; left > 0; left -= each) sizes.push_back(std::min(each, left));
  return sizes;
}

std::vector<std::size_t> permutation(const NodeReading& node) {
  std::vector<std::size_t> all;
  const onnx::Attribute* given = node.find("perm");
  for (std::size_t at = node.rank(); given == nullptr && at-- > 0;) all.push_back(at);
  for (std::size_t at = 0; given != nullptr && at < given->integers.size(); ++at) {
    all.push_back(node.axis(given->integers[at], node.rank()));
  }
  if (std::set(all.begin(), all.end()).size() != node.rank() || all.size() != node.rank()) {
    node.fail("its perm does not name each dimension once");
  }
  return all;
}

Shape broadcast(const NodeReading& node, const Shape& one, const Shape& other) {
  const Shape &longer = one.size() < other.size() ? other : one,
              &shorter = one.size() < other.size() ? one : other;
  Shape shape = longer;
  const std::size_t added = longer.size() - shorter.size();
  for (std::size_t at = 0; at < shorter.size(); ++at) {
    std::int64_t& size = shape[added + at];
    if (size == 1) size = shorter[at];
    if (shorter[at] != 1 && shorter[at] != size) {
      node.fail("its inputs have " + std::to_string(size) + " and " + std::to_string(shorter[at]) +
                " elements in the same dimension");
    }
  }
  return shape;
}

}  // namespace pipewright::spmd::capture
