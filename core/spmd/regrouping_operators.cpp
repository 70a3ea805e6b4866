// Operators that give the same elements another shape. Dimensions go over into each other in
// groups, of which the first one may be divided where its shards are parts of the group on the side
// that follows. Forward, what divides the others of a group divides the first one with it.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// Throws InputError where they are more than any tensor has.
std::int64_t elements_of(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size > 0 && elements > kMost / size) throw InputError("shape: has too many elements");
    elements *= size;
  }
  return elements;
}

/// Letters of two shapes with the same elements, the dimensions of size 1 left out.
class Groups {
 public:
  /// With `pairs_ones`, dimensions of size 1 that meet are one.
  Groups(const Shape& from, const Shape& to, Direction direction, bool pairs_ones)
      : from_(from), to_(to), direction_(direction) {
    equation_.inputs = {std::string(from.size(), kUndivided)};
    equation_.outputs = {std::string(to.size(), kUndivided)};
    std::size_t in = 0, out = 0;
    for (const std::int64_t size : from) {
      if (size < 1) throw InputError("x: has no elements");
    }
    PIPEWRIGHT_ASSERT(elements_of(from) == elements_of(to), "two shapes of as many elements");
    while (in < from_.size() && out < to_.size()) {
      if (pairs_ones && from_[in] == 1 && to_[out] == 1) {
        equation_.inputs[0][in++] = equation_.outputs[0][out++] = next_letter();
      } else if (from_[in] == 1) {
        ++in;
      } else if (to_[out] == 1) {
        ++out;
      } else {
        group(in, out);
      }
    }
  }

  Equation equation() && { return std::move(equation_); }

 private:
  /// The fewest dimensions of both from here on that have as many elements.
  void group(std::size_t& in, std::size_t& out) {
    const std::size_t first_in = in, first_out = out;
    std::int64_t of_in = from_[in++], of_out = to_[out++];
    while (of_in != of_out) {
      if (of_in < of_out) {
        of_in *= from_[in++];
      } else {
        of_out *= to_[out++];
      }
    }
    const char leader = next_letter();
    equation_.inputs[0][first_in] = leader;
    equation_.outputs[0][first_out] = leader;
    const bool forward = direction_ == Direction::Forward;
    join(first_in, in, leader, forward ? from_[first_in] : 0);
    if (forward && in - first_in > 1) equation_.even.emplace_back(leader, from_[first_in]);
    if (out - first_out > 1) equation_.even.emplace_back(leader, to_[first_out]);
  }

  void join(std::size_t first, std::size_t end, char leader, std::int64_t elements) {
    for (std::size_t at = first + 1; at < end; ++at) {
      if (from_[at] == 1) continue;
      equation_.inputs[0][at] = next_letter();
      equation_.joined.push_back({equation_.inputs[0][at], leader, elements});
    }
  }

  char next_letter() { return letters(1, used_++).front(); }

  const Shape &from_, &to_;
  Direction direction_;
  std::size_t used_ = 0;
  Equation equation_;
};

/// `shape` with the one -1 that it may have as the elements that are left.
Shape completed(Shape shape, std::int64_t elements) {
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    if (std::find(open + 1, shape.end(), -1) != shape.end()) {
      throw InputError("shape: only one dimension can be left open by -1");
    }
    *open = 1;
    const std::int64_t others = elements_of(shape);
    *open = others > 0 ? elements / others : 0;
  }
  if (elements_of(shape) != elements) {
    throw InputError("shape: has not as many elements as x, which has " + std::to_string(elements));
  }
  return shape;
}

/// A size that is not known yet (-1) stands for one that every small mesh divides.
Shape with_known_sizes(Shape shape) {
  constexpr std::int64_t kUnknown = 256;
  std::replace(shape.begin(), shape.end(), std::int64_t{-1}, kUnknown);
  return shape;
}

/// `to` with the sizes of x where `asked` has a 0, and the one -1 as what is left.
Shape shape_asked_for(const Shape& from, Shape to, const Shape& asked) {
  for (std::size_t at = 0; at < to.size(); ++at) {
    if (to[at] < -1) throw InputError("shape: a size is not negative");
    if (at >= asked.size() || asked[at] != 0) continue;
    if (at >= from.size()) throw InputError("shape: 0 stands for a dimension that x does not have");
    to[at] = from[at];
  }
  return completed(std::move(to), elements_of(from));
}

/// Forward the groups are those from x to the output, backward those from the output to x.
template <Direction direction>
Equation groups(const Shape& from, const Shape& to, bool pairs_ones = false) {
  if (direction == Direction::Forward) return Groups(from, to, direction, pairs_ones).equation();
  Equation equation = Groups(to, from, direction, pairs_ones).equation();
  std::swap(equation.inputs, equation.outputs);
  return equation;
}

template <Direction direction>
Equation reshaped(const Operands& operands) {
  const Shape from = with_known_sizes(operands.shape()), asked = operands.integers("shape");
  const bool forward = direction == Direction::Forward;
  const Shape& to = forward ? asked : operands.outputs().front().tensors.front().shape;
  return groups<direction>(from, shape_asked_for(from, to, asked), true);
}

template <Direction direction>
Equation flattened(const Operands& operands) {
  const Shape from = with_known_sizes(operands.shape());
  const std::size_t first = operands.axis("start_axis", from.size());
  const std::size_t last = operands.axis("stop_axis", from.size());
  if (first > last) throw InputError("start_axis: comes after stop_axis");
  Shape to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(first));
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(last) + 1;
  to.push_back(elements_of(Shape(from.begin() + static_cast<std::ptrdiff_t>(first), end)));
  to.insert(to.end(), end, from.end());
  return groups<direction>(from, to);
}

/// Without the dimensions of size 1 that "axis" names, without all of them if it names none.
template <Direction direction>
Equation squeezed(const Operands& operands) {
  const Shape from = with_known_sizes(operands.shape());
  const std::vector<std::size_t> axes = operands.axes("axis", from.size());
  Shape to;
  for (std::size_t at = 0; at < from.size(); ++at) {
    const bool named = axes.empty() || std::find(axes.begin(), axes.end(), at) != axes.end();
    if (from[at] != 1 || !named) to.push_back(from[at]);
  }
  return groups<direction>(from, to);
}

/// With dimensions of size 1 where "axis" says, which counts in the output.
template <Direction direction>
Equation unsqueezed(const Operands& operands) {
  const Shape from = with_known_sizes(operands.shape());
  Shape to = from;
  const std::size_t rank = to.size() + operands.integers("axis").size();
  std::vector<std::size_t> axes = operands.axes("axis", rank);
  std::sort(axes.begin(), axes.end());
  for (const std::size_t axis : axes) {
    if (axis > to.size()) throw InputError("axis: names a dimension twice");
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  }
  return groups<direction>(from, to);
}

Operator regrouping(std::string_view name, std::vector<AttributeSlot> attributes,
                    Equation (*forward)(const Operands&), Equation (*backward)(const Operands&)) {
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"out"}},
          .attributes = std::move(attributes),
          .equation = forward,
          .backward = backward};
}

}  // namespace

std::vector<Operator> regrouping_operators() {
  const std::vector<std::int64_t> none;
  return {
      regrouping("flatten", {{"start_axis", std::int64_t{1}}, {"stop_axis", std::int64_t{-1}}},
                 flattened<Direction::Forward>, flattened<Direction::Backward>),
      regrouping("reshape", {{"shape", none}}, reshaped<Direction::Forward>,
                 reshaped<Direction::Backward>),
      regrouping("squeeze", {{"axis", none}}, squeezed<Direction::Forward>,
                 squeezed<Direction::Backward>),
      regrouping("unsqueeze", {{"axis", none}}, unsqueezed<Direction::Forward>,
                 unsqueezed<Direction::Backward>),
  };
}

}  // namespace pipewright::spmd
