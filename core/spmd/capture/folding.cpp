#include "core/spmd/capture/folding.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/spmd/capture/shapes_of_nodes.hpp"

namespace pipewright::spmd::capture {
namespace {

std::size_t sized(std::int64_t size) { return static_cast<std::size_t>(size); }

/// As numbers of this type are kept.
double rounded(double value, DataType type) {
  switch (type) {
    case DataType::Double:
      return value;
    case DataType::Bool:
      return value != 0 ? 1 : 0;
    default:
      return onnx::is_float(type) ? static_cast<double>(static_cast<float>(value))
                                  : std::trunc(value);
  }
}

/// Each element of the shape from its index.
template <class Element>
Constant filled(const NodeReading& node, Shape shape, DataType type, Element element) {
  for (const std::int64_t size : shape) {
    if (size < 0) node.fail("has a tensor with a negative size");
  }
  Constant made{std::move(shape), type, {}};
  std::int64_t count = 1;
  for (const std::int64_t size : made.shape) {
    if (size > kMostFolded || (count *= size) > kMostFolded) {
      node.fail("makes a constant of more than 2^24 elements");
    }
  }
  Shape index(made.shape.size());
  made.values.reserve(sized(count));
  while (static_cast<std::int64_t>(made.values.size()) < count) {
    made.values.push_back(rounded(element(index), type));
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < made.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return made;
}

/// The element that stands there where dimensions of size 1 are repeated.
double at(const Constant& from, const Shape& index) {
  const std::size_t added = index.size() - from.shape.size();
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < from.shape.size(); ++axis) {
    const std::int64_t own = from.shape[axis] == 1 ? 0 : index[added + axis];
    place = place * from.shape[axis] + own;
  }
  return from.values[sized(place)];
}

// --- Element by element ------------------------------------------------------------------------

Constant as_it_is(const NodeReading& node) { return node.constant(0); }

Constant cast(const NodeReading& node, DataType type) {
  const Constant& x = node.constant(0);
  return filled(node, x.shape, type, [&](const Shape& index) { return at(x, index); });
}

template <class Combine>
Constant combined(const NodeReading& node, DataType type, Combine combine) {
  const Constant &x = node.constant(0), &y = node.constant(1);
  return filled(node, broadcast(node, x.shape, y.shape), type,
                [&](const Shape& index) { return combine(at(x, index), at(y, index)); });
}

Constant divided(const NodeReading& node) {
  const DataType type = node.constant(0).type;
  return combined(node, type, [&](double x, double y) {
    if (!onnx::is_float(type) && y == 0) node.fail("divides a whole number by 0");
    return x / y;
  });
}

Constant chosen(const NodeReading& node) {
  const Constant &condition = node.constant(0), &x = node.constant(1), &y = node.constant(2);
  const Shape shape = broadcast(node, broadcast(node, condition.shape, x.shape), y.shape);
  return filled(node, shape, x.type, [&](const Shape& index) {
    return at(condition, index) != 0 ? at(x, index) : at(y, index);
  });
}

// --- In other places ---------------------------------------------------------------------------

Constant in_shape(const NodeReading& node) {
  return {regrouped(node), node.constant(0).type, node.constant(0).values};
}

Constant joined(const NodeReading& node) {
  const Constant& first = node.constant(0);
  const std::size_t axis = node.axis(node.attribute("axis", 0), first.shape.size());
  Shape shape = first.shape;
  shape[axis] = 0;
  for (std::size_t input = 0; input < node.inputs(); ++input) {
    Shape own = node.constant(input).shape;
    if (own.size() != shape.size()) node.fail("joins tensors of different dimensions");
    shape[axis] += own[axis];
    own[axis] = first.shape[axis];
    if (own != first.shape) node.fail("joins tensors of different sizes");
  }
  return filled(node, shape, first.type, [&](Shape index) {
    std::size_t input = 0;
    for (; index[axis] >= node.constant(input).shape[axis]; ++input) {
      index[axis] -= node.constant(input).shape[axis];
    }
    const Constant& from = node.constant(input);
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < index.size(); ++dim) {
      place = place * from.shape[dim] + index[dim];
    }
    return from.values[sized(place)];
  });
}

Constant cut(const NodeReading& node) {
  const Constant& from = node.constant(0);
  const std::vector<Range> ranges = sliced(node);
  Shape shape;
  for (const Range& range : ranges) shape.push_back(range.count);
  return filled(node, shape, from.type, [&](Shape index) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] = ranges[axis].first + index[axis] * ranges[axis].step;
    }
    return at(from, index);
  });
}

Constant gathered(const NodeReading& node) {
  const Constant &from = node.constant(0), &chosen = node.constant(1);
  const std::size_t axis = node.axis(node.attribute("axis", 0), from.shape.size());
  const auto place = static_cast<std::ptrdiff_t>(axis);
  Shape shape = from.shape;
  shape.erase(shape.begin() + place);
  shape.insert(shape.begin() + place, chosen.shape.begin(), chosen.shape.end());
  return filled(node, shape, from.type, [&](const Shape& index) {
    const auto begin = index.begin() + place;
    const auto end = begin + static_cast<std::ptrdiff_t>(chosen.shape.size());
    std::int64_t which = whole(at(chosen, Shape(begin, end)));
    if (which < 0) which += from.shape[axis];
    if (which < 0 || which >= from.shape[axis]) node.fail("chooses an element that is not there");
    Shape own(index.begin(), begin);
    own.push_back(which);
    own.insert(own.end(), end, index.end());
    return at(from, own);
  });
}

/// Each index stands where its element goes, and says where along the axis it comes from.
Constant gathered_each(const NodeReading& node) {
  const Constant &from = node.constant(0), &chosen = node.constant(1);
  const std::size_t axis = node.axis(node.attribute("axis", 0), from.shape.size());
  bool fits = chosen.shape.size() == from.shape.size();
  for (std::size_t dim = 0; fits && dim < from.shape.size(); ++dim) {
    fits = dim == axis || chosen.shape[dim] <= from.shape[dim];
  }
  if (!fits) node.fail("has indices of another shape");
  return filled(node, chosen.shape, from.type, [&](Shape index) {
    std::int64_t which = whole(at(chosen, index));
    if (which < 0) which += from.shape[axis];
    if (which < 0 || which >= from.shape[axis]) node.fail("chooses an element that is not there");
    index[axis] = which;
    return at(from, index);
  });
}

/// The last dimension of the indices has the first coordinates of each element.
Constant gathered_by_coordinates(const NodeReading& node) {
  const Constant &from = node.constant(0), &chosen = node.constant(1);
  const std::int64_t given = chosen.shape.empty() ? -1 : chosen.shape.back();
  const bool fits = given >= 0 && given <= static_cast<std::int64_t>(from.shape.size());
  if (!fits || node.attribute("batch_dims", 0) != 0) node.fail("has indices of another shape");
  Shape shape(chosen.shape.begin(), chosen.shape.end() - 1);
  const auto leading = static_cast<std::ptrdiff_t>(shape.size());
  shape.insert(shape.end(), from.shape.begin() + given, from.shape.end());
  return filled(node, shape, from.type, [&](const Shape& index) {
    Shape place(index.begin(), index.begin() + leading), own;
    place.push_back(0);
    for (; place.back() < given; ++place.back()) {
      const std::int64_t size = from.shape[own.size()];
      std::int64_t which = whole(at(chosen, place));
      if (which < 0) which += size;
      if (which < 0 || which >= size) node.fail("chooses an element that is not there");
      own.push_back(which);
    }
    own.insert(own.end(), index.begin() + leading, index.end());
    return at(from, own);
  });
}

Constant transposed(const NodeReading& node) {
  const Constant& from = node.constant(0);
  const std::vector<std::size_t> axes = permutation(node);
  Shape shape;
  for (const std::size_t axis : axes) shape.push_back(from.shape[axis]);
  return filled(node, shape, from.type, [&](const Shape& index) {
    Shape own(index.size());
    for (std::size_t dim = 0; dim < index.size(); ++dim) own[axes[dim]] = index[dim];
    return at(from, own);
  });
}

Constant expanded(const NodeReading& node) {
  const Constant& from = node.constant(0);
  return filled(node, broadcast(node, from.shape, node.integers(1)), from.type,
                [&](const Shape& index) { return at(from, index); });
}

Constant triangle(const NodeReading& node) {
  const Constant& from = node.constant(0);
  if (from.shape.size() < 2) node.fail("has no matrix");
  const std::int64_t diagonal = node.has(1) ? node.integer(1) : 0;
  const bool upper = node.attribute("upper", 1) != 0;
  return filled(node, from.shape, from.type, [&](const Shape& index) {
    const std::int64_t beyond = index.back() - index[index.size() - 2];
    const bool stays = upper ? beyond >= diagonal : beyond <= diagonal;
    return stays ? at(from, index) : 0.0;
  });
}

Constant repeated_value(const NodeReading& node) {
  const onnx::Attribute* value = node.find("value");
  const Shape shape = node.integers(0);
  if (value == nullptr || !value->tensor) {
    return filled(node, shape, DataType::Float, [](const Shape&) { return 0.0; });
  }
  const std::vector<double> values = node.values_of(*value->tensor);
  if (values.size() != 1) node.fail("expected a value of one element");
  return filled(node, shape, value->tensor->type, [&](const Shape&) { return values.front(); });
}

Constant counted(const NodeReading& node) {
  const double start = node.number(0), end = node.number(1), step = node.number(2);
  const double count = std::ceil((end - start) / step);
  if (!(count <= static_cast<double>(kMostFolded))) node.fail("counts too far");
  return filled(node, {std::max<std::int64_t>(0, whole(count))}, node.constant(0).type,
                [&](const Shape& index) { return start + step * static_cast<double>(index[0]); });
}

Constant running_sum(const NodeReading& node) {
  if (node.attribute("exclusive", 0) != 0 || node.attribute("reverse", 0) != 0) {
    node.fail("is known forward and with each element alone");
  }
  Constant sum = node.constant(0);
  const std::size_t axis = node.axis(node.integer(1), sum.shape.size());
  std::size_t stride = 1;
  for (std::size_t dim = axis + 1; dim < sum.shape.size(); ++dim) stride *= sized(sum.shape[dim]);
  const std::size_t line = stride * sized(sum.shape[axis]);
  for (std::size_t place = 0; place < sum.values.size(); ++place) {
    if (place % line >= stride) sum.values[place] += sum.values[place - stride];
  }
  return sum;
}

Constant product(const NodeReading& node) {
  const Constant& x = node.constant(0);
  const auto axes = node.integers_of("axes", 1);
  if (axes && axes->size() != x.shape.size()) node.fail("is known for all dimensions alone");
  double all = 1;
  for (const double value : x.values) all *= value;
  const bool keeps = node.attribute("keepdims", 1) != 0;
  return filled(node, keeps ? Shape(x.shape.size(), 1) : Shape(), x.type,
                [&](const Shape&) { return all; });
}

using OfOne = double (*)(double);
const std::map<std::string_view, OfOne> kOfOne = {
    {"Abs", [](double x) { return std::abs(x); }},
    {"Ceil", [](double x) { return std::ceil(x); }},
    {"Cos", [](double x) { return std::cos(x); }},
    {"Exp", [](double x) { return std::exp(x); }},
    {"Floor", [](double x) { return std::floor(x); }},
    {"Log", [](double x) { return std::log(x); }},
    {"Neg", [](double x) { return -x; }},
    {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"Reciprocal", [](double x) { return 1 / x; }},
    {"Sin", [](double x) { return std::sin(x); }},
    {"Sqrt", [](double x) { return std::sqrt(x); }},
};

using OfTwo = double (*)(double, double);
const std::map<std::string_view, OfTwo> kOfTwo = {
    {"Add", [](double x, double y) { return x + y; }},
    {"Max", [](double x, double y) { return std::max(x, y); }},
    {"Min", [](double x, double y) { return std::min(x, y); }},
    {"Mul", [](double x, double y) { return x * y; }},
    {"Pow", [](double x, double y) { return std::pow(x, y); }},
    {"Sub", [](double x, double y) { return x - y; }},
};

using Whether = bool (*)(double, double);
const std::map<std::string_view, Whether> kWhether = {
    {"And", [](double x, double y) { return x != 0 && y != 0; }},
    {"Equal", [](double x, double y) { return x == y; }},
    {"Greater", [](double x, double y) { return (x > y); }},
    {"GreaterOrEqual", [](double x, double y) { return (x >= y); }},
    {"Less", [](double x, double y) { return x < y; }},
    {"LessOrEqual", [](double x, double y) { return x <= y; }},
    {"Or", [](double x, double y) { return x != 0 || y != 0; }},
};

using Folding = Constant (*)(const NodeReading&);
const std::map<std::string_view, Folding> kOthers = {
    {"Concat", joined},
    {"ConstantOfShape", repeated_value},
    {"CumSum", running_sum},
    {"Div", divided},
    {"Expand", expanded},
    {"Flatten", in_shape},
    {"Gather", gathered},
    {"GatherElements", gathered_each},
    {"GatherND", gathered_by_coordinates},
    {"Identity", as_it_is},
    {"Range", counted},
    {"ReduceProd", product},
    {"Reshape", in_shape},
    {"Slice", cut},
    {"Squeeze", in_shape},
    {"Transpose", transposed},
    {"Trilu", triangle},
    {"Unsqueeze", in_shape},
    {"Where", chosen},
};

/// Of Constant: a tensor, a number or a list of them.
Constant written(const NodeReading& node) {
  for (const onnx::Attribute& attribute : node.node().attributes) {
    if (attribute.name == "value" && attribute.tensor) {
      return {attribute.tensor->dims, attribute.tensor->type, node.values_of(*attribute.tensor)};
    }
    const auto list = [&](const auto& numbers, DataType type) -> Constant {
      return {{static_cast<std::int64_t>(numbers.size())}, type, {numbers.begin(), numbers.end()}};
    };
    if (attribute.name == "value_int") {
      return {{}, DataType::Int64, {static_cast<double>(attribute.integer)}};
    }
    if (attribute.name == "value_float") {
      return {{}, DataType::Float, {static_cast<double>(attribute.number)}};
    }
    if (attribute.name == "value_ints") return list(attribute.integers, DataType::Int64);
    if (attribute.name == "value_floats") return list(attribute.numbers, DataType::Float);
  }
  node.fail("has no value that is known here");
}

Constant shape_of(const NodeReading& node) {
  const Shape& shape = node.input(0).shape;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::int64_t given) {
    return std::clamp<std::int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const std::int64_t first = place(node.attribute("start", 0)),
                     end = std::max(first, place(node.attribute("end", rank)));
  return {{end - first}, DataType::Int64, {shape.begin() + first, shape.begin() + end}};
}

}  // namespace

std::optional<Constant> folded(const NodeReading& node) {
  const std::string& type = node.node().type;
  if (type == "Constant") return written(node);
  if (type == "Shape") return shape_of(node);
  if (type == "Size") {
    return Constant{{}, DataType::Int64, {static_cast<double>(elements_of(node.input(0).shape))}};
  }
  if (type == "CastLike" && node.input(0).constant) return cast(node, node.input(1).type);
  for (std::size_t input = 0; input < node.inputs(); ++input) {
    if (node.has(input) && !node.input(input).constant) return std::nullopt;
  }
  if (node.inputs() == 0) return std::nullopt;
  const DataType kind = node.constant(0).type;
  if (type == "Cast") return cast(node, static_cast<DataType>(node.attribute("to", 1)));
  if (const auto row = kOfOne.find(type); row != kOfOne.end()) {
    const Constant& x = node.constant(0);
    return filled(node, x.shape, kind,
                  [&](const Shape& index) { return row->second(at(x, index)); });
  }
  if (const auto row = kOfTwo.find(type); row != kOfTwo.end() && node.inputs() == 2) {
    return combined(node, kind, row->second);
  }
  if (const auto row = kWhether.find(type); row != kWhether.end()) {
    return combined(node, DataType::Bool,
                    [&](double x, double y) { return row->second(x, y) ? 1.0 : 0.0; });
  }
  const auto row = kOthers.find(type);
  return row == kOthers.end() ? std::nullopt : std::optional(row->second(node));
}

}  // namespace pipewright::spmd::capture
