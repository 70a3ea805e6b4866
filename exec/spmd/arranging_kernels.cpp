// Operators that put elements elsewhere, unchanged: one list of places each, along which values go
// forward and gradients back.
#include <algorithm>

#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

using spmd::Operands;
using spmd::Shape;

/// Element from[i] of an input is element to[i] of an output.
struct Copies {
  std::size_t input = 0, output = 0;
  std::vector<std::size_t> from, to;
};

/// What an operator copies, by the shapes of its parts here.
struct Parts {
  Operands operands;
  std::vector<Shape> inputs, outputs;
};
using CopiesOf = std::vector<Copies> (*)(const Parts&);

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

/// Where the elements of a box lie that begins at `first` in an array with these strides.
std::vector<std::size_t> places(const Shape& box, const Shape& strides, std::int64_t first = 0) {
  std::vector<std::size_t> all;
  const std::size_t count = sized(elements(box, 0, box.size()));
  all.reserve(count);
  Shape index(box.size());
  std::int64_t place = first;
  while (all.size() < count) {
    all.push_back(sized(place));
    for (std::size_t axis = box.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < box[axis]) break;
      place -= strides[axis] * box[axis];
      index[axis] = 0;
    }
  }
  return all;
}

std::vector<std::size_t> in_order(const Shape& shape) { return places(shape, strides_of(shape)); }

std::vector<Copies> same_order(const Parts& parts) {
  return {{.from = in_order(parts.inputs[0]), .to = in_order(parts.inputs[0])}};
}

std::vector<Copies> permuted(const Parts& parts) {
  const Shape strides = strides_of(parts.inputs[0]);
  Shape from;
  for (const std::size_t axis : parts.operands.axes("perm", strides.size())) {
    from.push_back(strides[axis]);
  }
  return {{.from = places(parts.outputs[0], from), .to = in_order(parts.outputs[0])}};
}

/// Side by side along an axis: the parts are inputs of one output, or outputs of one input.
std::vector<Copies> side_by_side(const std::vector<Shape>& parts, const Shape& whole,
                                 std::size_t axis, bool joins) {
  std::vector<Copies> all;
  const Shape strides = strides_of(whole);
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    std::vector<std::size_t> there = places(parts[at], strides, begin * strides[axis]);
    if (joins) {
      all.push_back({.input = at, .from = in_order(parts[at]), .to = std::move(there)});
    } else {
      all.push_back({.output = at, .from = std::move(there), .to = in_order(parts[at])});
    }
    begin += parts[at][axis];
  }
  return all;
}

std::vector<Copies> joined(const Parts& parts) {
  const std::size_t axis = parts.operands.axis("axis", parts.outputs[0].size());
  return side_by_side(parts.inputs, parts.outputs[0], axis, true);
}

std::vector<Copies> split(const Parts& parts) {
  const std::size_t axis = parts.operands.axis("axis", parts.inputs[0].size());
  return side_by_side(parts.outputs, parts.inputs[0], axis, false);
}

/// The parts lack the dimension along which they lie: it has one element there.
std::vector<Shape> with_axis(std::vector<Shape> shapes, std::size_t axis) {
  for (Shape& shape : shapes) shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return shapes;
}

std::vector<Copies> stacked(const Parts& parts) {
  const std::size_t axis = parts.operands.axis("axis", parts.outputs[0].size());
  return side_by_side(with_axis(parts.inputs, axis), parts.outputs[0], axis, true);
}

std::vector<Copies> taken_apart(const Parts& parts) {
  const std::size_t axis = parts.operands.axis("axis", parts.inputs[0].size());
  return side_by_side(with_axis(parts.outputs, axis), parts.inputs[0], axis, false);
}

/// From "starts" on along the axes, which are whole; counted from the end where negative.
std::vector<Copies> sliced(const Parts& parts) {
  const Shape& shape = parts.inputs[0];
  const Shape strides = strides_of(shape);
  const std::vector<std::size_t> axes = parts.operands.axes("axes", shape.size());
  const std::vector<std::int64_t> starts = parts.operands.integers("starts");
  std::int64_t first = 0;
  for (std::size_t at = 0; at < axes.size(); ++at) {
    const std::int64_t size = shape[axes[at]];
    const std::int64_t start = starts[at] < 0 ? starts[at] + size : starts[at];
    first += std::clamp<std::int64_t>(start, 0, size) * strides[axes[at]];
  }
  return {{.from = places(parts.outputs[0], strides, first), .to = in_order(parts.outputs[0])}};
}

/// With so many elements before and after each dimension, which are zeros.
std::vector<Copies> padded(const Parts& parts) {
  const Shape strides = strides_of(parts.outputs[0]);
  const std::vector<std::int64_t> margins = parts.operands.integers("paddings");
  std::int64_t first = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    first += margins[2 * axis] * strides[axis];
  }
  return {{.from = in_order(parts.inputs[0]), .to = places(parts.inputs[0], strides, first)}};
}

/// Each dimension as two, the repetitions, whose elements lie in one place, and its own.
std::vector<Copies> repeated(const Parts& parts) {
  const Shape &from = parts.inputs[0], &to = parts.outputs[0], own = strides_of(from);
  Shape box, strides;
  for (std::size_t axis = 0; axis < to.size(); ++axis) {
    const std::size_t added = to.size() - from.size();
    const std::int64_t size = axis < added ? 1 : from[axis - added];
    box.insert(box.end(), {size == 0 ? 0 : to[axis] / size, size});
    strides.insert(strides.end(), {0, axis < added ? 0 : own[axis - added]});
  }
  return {{.from = places(box, strides), .to = in_order(to)}};
}

/// What lies on or beyond a diagonal of the last two dimensions, which are whole.
std::vector<Copies> triangle(const Parts& parts, bool lower) {
  const Shape& shape = parts.inputs[0];
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const std::int64_t diagonal = parts.operands.integer("diagonal");
  Copies copies;
  for (const std::size_t place : in_order(shape)) {
    const auto at = static_cast<std::int64_t>(place);
    const std::int64_t beyond = at % columns - at / columns % rows;
    if (lower ? beyond <= diagonal : beyond >= diagonal) copies.from.push_back(place);
  }
  copies.to = copies.from;
  return {copies};
}

std::vector<Copies> upper_triangle(const Parts& parts) { return triangle(parts, false); }
std::vector<Copies> either_triangle(const Parts& parts) {
  return triangle(parts, parts.operands.boolean("lower"));
}

template <class Arrays>
std::vector<Shape> shapes(const Arrays& arrays) {
  std::vector<Shape> all;
  for (const LocalArray* array : arrays) all.push_back(shape_of(array));
  return all;
}

std::vector<Copies> copies_of(const LocalCall& call, CopiesOf copies) {
  return copies({operands_of(call), shapes(call.inputs), shapes(call.outputs)});
}

template <CopiesOf copies>
LocalOperator moving(std::string_view rule) {
  return {.rule = rule,
          .forward =
              [](const LocalCall& call) {
                for (const Copies& one : copies_of(call, copies)) {
                  for (std::size_t i = 0; i < one.to.size(); ++i) {
                    call.outputs[one.output]->values[one.to[i]] =
                        call.inputs[one.input]->values[one.from[i]];
                  }
                }
              },
          .backward =
              [](const LocalCall& call) {
                for (const Copies& one : copies_of(call, copies)) {
                  LocalArray* to = call.gradients[one.input];
                  const LocalArray* from = call.of_outputs[one.output];
                  for (std::size_t i = 0; to && from && i < one.to.size(); ++i) {
                    to->values[one.from[i]] += from->values[one.to[i]];
                  }
                }
              }};
}

const char* margins_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  return operands_of(graph, one).number("pad_value") == 0 ? nullptr : "with zeros around";
}

const char* slice_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const Operands operands = operands_of(graph, one);
  const bool fits = operands.integers("axes").size() == operands.integers("starts").size();
  return fits ? nullptr : "with a start for each of its axes";
}

}  // namespace

std::vector<LocalOperator> arranging_kernels() {
  LocalOperator pad = moving<padded>("pad"), slice = moving<sliced>("slice");
  pad.refusal = margins_refusal;
  slice.refusal = slice_refusal;
  return {
      moving<joined>("concat"),
      moving<same_order>("flatten"),
      pad,
      moving<same_order>("reshape"),
      slice,
      moving<split>("split"),
      moving<split>("split_with_num"),
      moving<same_order>("squeeze"),
      moving<stacked>("stack"),
      moving<repeated>("tile"),
      moving<permuted>("transpose"),
      moving<either_triangle>("tril_triu"),
      moving<upper_triangle>("triu"),
      moving<taken_apart>("unbind"),
      moving<same_order>("unsqueeze"),
  };
}

}  // namespace pipewright::exec::graphs
