// Nodes that put elements elsewhere.
#include "core/spmd/capture/shapes_of_nodes.hpp"
#include "core/spmd/capture/translations.hpp"

namespace pipewright::spmd::capture {
namespace {

using Integers = std::vector<std::int64_t>;

Value in_shape(const NodeReading& node, GraphBuilding& graph, Value& x, const Shape& shape) {
  if (shape == x.shape) return x;
  return graph.make_one(node, "reshape", {&x}, shape, {shape});
}

Outputs reshape(const NodeReading& node, GraphBuilding& graph) {
  return {in_shape(node, graph, node.input(0), node.checked(regrouped(node)))};
}

Outputs transpose(const NodeReading& node, GraphBuilding& graph) {
  Shape shape;
  Integers perm;
  for (const std::size_t axis : permutation(node)) {
    shape.push_back(node.input(0).shape[axis]);
    perm.push_back(static_cast<std::int64_t>(axis));
  }
  return {graph.make_one(node, "transpose", {&node.input(0)}, shape, {perm})};
}

/// The elements [first, end) of some dimensions.
Value part(const NodeReading& node, GraphBuilding& graph, Value& x,
           const std::vector<Range>& ranges) {
  Shape shape;
  Integers axes, starts, ends;
  for (std::size_t axis = 0; axis < ranges.size(); ++axis) {
    const Range& range = ranges[axis];
    if (range.step != 1) node.fail("takes every other element, which is not captured");
    shape.push_back(range.count);
    if (range.count == x.shape[axis]) continue;
    axes.push_back(static_cast<std::int64_t>(axis));
    starts.push_back(range.first);
    ends.push_back(range.first + range.count);
  }
  if (axes.empty()) return x;
  return graph.make_one(node, "slice", {&x}, shape, {axes, starts, ends});
}

Outputs slice(const NodeReading& node, GraphBuilding& graph) {
  return {part(node, graph, node.input(0), sliced(node))};
}

Outputs split(const NodeReading& node, GraphBuilding& graph) {
  Value& x = node.input(0);
  const std::size_t axis = node.axis(node.attribute("axis", 0), x.shape.size());
  const Integers sizes = split_sizes(node, axis);
  std::vector<Shape> shapes;
  for (const std::int64_t size : sizes) {
    shapes.push_back(x.shape);
    shapes.back()[axis] = size;
  }
  return graph.make(node, "split", {&x}, shapes, {sizes, static_cast<std::int64_t>(axis)});
}

Outputs concat(const NodeReading& node, GraphBuilding& graph) {
  Shape shape = node.input(0).shape;
  const std::size_t axis = node.axis(node.attribute("axis", 0), shape.size());
  std::vector<Value*> inputs;
  std::int64_t size = 0;
  for (std::size_t input = 0; input < node.inputs(); ++input) {
    Value& next = node.input(input);
    inputs.push_back(&next);
    if (next.shape.size() != shape.size()) node.fail("joins tensors of different dimensions");
    size += next.shape[axis];
  }
  shape[axis] = size;
  return {graph.make_one(node, "concat", inputs, shape, {static_cast<std::int64_t>(axis)})};
}

/// Repeats each dimension so often; dimensions that are new come first.
Value repeated(const NodeReading& node, GraphBuilding& graph, Value& x, const Integers& times) {
  Shape shape = x.shape;
  shape.insert(shape.begin(), times.size() - x.shape.size(), 1);
  bool is_same = shape == x.shape;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    is_same = is_same && times[axis] == 1;
    if (times[axis] < 1 || times[axis] > kMostFolded) node.fail("repeats a dimension too often");
    shape[axis] *= times[axis];
  }
  return is_same ? x : graph.make_one(node, "tile", {&x}, shape, {times});
}

Outputs expand(const NodeReading& node, GraphBuilding& graph) {
  Value& x = node.input(0);
  const Shape shape = node.checked(broadcast(node, x.shape, node.checked(node.integers(1))));
  Integers times = shape;
  for (std::size_t axis = 0; axis < x.shape.size(); ++axis) {
    times[times.size() - x.shape.size() + axis] /= x.shape[axis];
  }
  return {repeated(node, graph, x, times)};
}

Outputs tile(const NodeReading& node, GraphBuilding& graph) {
  const Integers times = node.integers(1);
  if (times.size() != node.rank()) node.fail("has not a number for each dimension");
  return {repeated(node, graph, node.input(0), times)};
}

Outputs pad(const NodeReading& node, GraphBuilding& graph) {
  Value& x = node.input(0);
  const auto margins = node.integers_of("pads", 1);
  const std::size_t rank = x.shape.size();
  if (!margins || margins->size() != 2 * rank || node.has(3)) {
    node.fail("is captured with two margins for each dimension");
  }
  const double value = node.has(2) ? node.number(2) : 0;
  if (node.text_attribute("mode", "constant") != "constant" || value != 0) {
    node.fail("is captured with zeros around");
  }
  Integers paddings;
  Shape shape = x.shape;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    for (const std::int64_t margin : {(*margins)[axis], (*margins)[rank + axis]}) {
      if (margin < 0 || margin > kMostFolded) node.fail("cuts or pads too much");
      paddings.push_back(margin);
      shape[axis] += margin;
    }
  }
  return {graph.make_one(node, "pad", {&x}, shape, {paddings, 0.0})};
}

Outputs triangle(const NodeReading& node, GraphBuilding& graph) {
  const std::int64_t diagonal = node.has(1) ? node.integer(1) : 0;
  const bool lower = node.attribute("upper", 1) == 0;
  return {
      graph.make_one(node, "tril_triu", {&node.input(0)}, node.input(0).shape, {diagonal, lower})};
}

/// Rows of a table by ids; one element of a dimension; elements of a dimension by a list.
Outputs gather(const NodeReading& node, GraphBuilding& graph) {
  Value &x = node.input(0), &ids = node.input(1);
  const std::size_t axis = node.axis(node.attribute("axis", 0), x.shape.size());
  const auto place = static_cast<std::ptrdiff_t>(axis);
  Shape shape = x.shape;
  shape.erase(shape.begin() + place);
  if (ids.constant && ids.shape.empty()) {
    std::int64_t which = node.integer(1);
    if (which < 0) which += x.shape[axis];
    if (which < 0 || which >= x.shape[axis]) node.fail("chooses an element that is not there");
    std::vector<Range> ranges;
    for (const std::int64_t size : x.shape) ranges.push_back({0, size, 1});
    ranges[axis] = {which, 1, 1};
    Value one = part(node, graph, x, ranges);
    return {in_shape(node, graph, one, shape)};
  }
  shape.insert(shape.begin() + place, ids.shape.begin(), ids.shape.end());
  if (axis == 0 && x.shape.size() == 2) {
    Value rows = graph.make_one(node, "embedding", {&ids, &x}, shape);
    graph.give_type(rows, x.type);
    return {rows};
  }
  if (ids.shape.size() != 1) node.fail("is captured with ids in one dimension, or from a table");
  return {graph.make_one(node, "gather", {&x, &ids}, shape, {static_cast<std::int64_t>(axis)})};
}

}  // namespace

std::vector<Translation> arranging_translations() {
  return {
      {"Concat", concat},     {"Expand", expand},   {"Flatten", reshape},     {"Gather", gather},
      {"Pad", pad},           {"Reshape", reshape}, {"Slice", slice},         {"Split", split},
      {"Squeeze", reshape},   {"Tile", tile},       {"Transpose", transpose}, {"Trilu", triangle},
      {"Unsqueeze", reshape},
  };
}

}  // namespace pipewright::spmd::capture
