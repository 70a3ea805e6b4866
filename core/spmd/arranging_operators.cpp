// Operators that put the elements of tensors elsewhere: parts of them, several side by side, the
// dimensions in another order.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

std::string letters_at(const std::string& all, const std::vector<std::size_t>& axes) {
  std::string some;
  for (const std::size_t axis : axes) some += all[axis];
  return some;
}

/// One tensor that keeps its dimensions, some of which are needed whole.
Equation whole_at(const Operands& operands, const std::vector<std::size_t>& axes) {
  const std::string all = letters(operands.rank());
  return {.inputs = {all}, .outputs = {all}, .whole = letters_at(all, axes)};
}

Equation part_of(const Operands& operands) {
  return whole_at(operands, operands.axes("axes", operands.rank()));
}

/// [before, after] for each dimension: one that grows is needed whole.
Equation with_margins(const Operands& operands) {
  const std::vector<std::int64_t> margins = operands.integers("paddings");
  if (margins.size() != 2 * operands.rank()) {
    throw InputError("paddings: expected two numbers for each of " +
                     std::to_string(operands.rank()) + " dimensions, found " +
                     std::to_string(margins.size()));
  }
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < operands.rank(); ++axis) {
    if (margins[2 * axis] != 0 || margins[2 * axis + 1] != 0) axes.push_back(axis);
  }
  return whole_at(operands, axes);
}

/// The lower or upper triangle of the last two dimensions.
Equation triangle(const Operands& operands) {
  if (operands.rank() < 2) throw InputError("x: a matrix has two dimensions or more");
  return whole_at(operands, {operands.rank() - 2, operands.rank() - 1});
}

Equation split_into(const Operands& operands, std::size_t parts) {
  const std::string all = letters(operands.rank());
  const std::size_t axis = operands.axis("axis", operands.rank());
  return {.inputs = {all},
          .outputs = std::vector<std::string>(parts, all),
          .whole = std::string(1, all[axis])};
}

std::size_t count_of(std::int64_t parts, const std::string& what) {
  if (parts < 1 || parts > 4096) throw InputError(what + ": expected 1 to 4096 parts");
  return static_cast<std::size_t>(parts);
}

Equation split_by_sizes(const Operands& operands) {
  return split_into(
      operands,
      count_of(static_cast<std::int64_t>(operands.integers("sections").size()), "sections"));
}

Equation split_by_number(const Operands& operands) {
  return split_into(operands, count_of(operands.integer("num"), "num"));
}

/// One output for each element of a dimension, without this dimension.
Equation taken_apart(const Operands& operands) {
  const std::string all = letters(operands.rank());
  const std::size_t axis = operands.axis("axis", operands.rank());
  std::string out = all;
  out.erase(axis, 1);
  return {.inputs = {all},
          .outputs = std::vector<std::string>(count_of(operands.shape()[axis], "x"), out),
          .whole = std::string(1, all[axis])};
}

/// Side by side along one dimension.
Equation joined(const Operands& operands) {
  const std::string all = letters(operands.rank());
  const std::size_t axis = operands.axis("axis", operands.rank());
  return {.inputs = std::vector<std::string>(operands.inputs().front().tensors.size(), all),
          .outputs = {all},
          .merging = Merging::LeastMoved,
          .whole = std::string(1, all[axis]),
          .outputs_stay = true};
}

/// Side by side along a dimension that is new.
Equation stacked(const Operands& operands) {
  const std::string all = letters(operands.rank());
  std::string out = all;
  out.insert(operands.axis("axis", operands.rank() + 1), 1, kUndivided);
  return {.inputs = std::vector<std::string>(operands.inputs().front().tensors.size(), all),
          .outputs = {out},
          .merging = Merging::LeastMoved,
          .outputs_stay = true};
}

/// Dimensions that are repeated are needed whole; those that are new are made where they are
/// wanted.
Equation repeated(const Operands& operands) {
  std::vector<std::int64_t> times = operands.integers("repeat_times");
  const std::size_t rank = operands.rank(), out_rank = std::max(rank, times.size());
  times.insert(times.begin(), out_rank - times.size(), 1);
  const std::string all = letters(out_rank);
  std::vector<std::size_t> axes;
  for (std::size_t axis = out_rank - rank; axis < out_rank; ++axis) {
    if (times[axis] != 1) axes.push_back(axis);
  }
  return {
      .inputs = {all.substr(out_rank - rank)}, .outputs = {all}, .whole = letters_at(all, axes)};
}

/// Dimension perm[d] of the input becomes dimension d.
Equation permuted(const Operands& operands) {
  const std::vector<std::size_t> from = operands.axes("perm", operands.rank());
  const std::string all = letters(operands.rank());
  std::vector<std::size_t> sorted = from;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.size() != all.size() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw InputError("perm: expected each of " + std::to_string(all.size()) + " dimensions once");
  }
  return {.inputs = {all}, .outputs = {letters_at(all, from)}, .outputs_stay = true};
}

Equation permuted_backward(const Operands& operands) {
  Equation equation = permuted(operands);
  equation.even = evenly(equation.inputs[0], operands.shape());
  return equation;
}

Operator one_to_one(std::string_view name, std::vector<AttributeSlot> attributes,
                    Equation (*equation)(const Operands&)) {
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"out"}},
          .attributes = std::move(attributes),
          .equation = equation};
}

Operator many_to_one(std::string_view name, Equation (*equation)(const Operands&)) {
  return {.name = name,
          .inputs = {{"x", true}},
          .outputs = {{"out"}},
          .attributes = {{"axis", std::int64_t{0}}},
          .equation = equation};
}

Operator one_to_many(std::string_view name, std::vector<AttributeSlot> attributes,
                     Equation (*equation)(const Operands&)) {
  attributes.push_back({"axis", std::int64_t{0}});
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"out", true}},
          .attributes = std::move(attributes),
          .equation = equation};
}

}  // namespace

std::vector<Operator> arranging_operators() {
  const std::vector<std::int64_t> none;
  Operator pad = one_to_one("pad", {{"paddings", none}, {"pad_value", 0.0}}, with_margins);
  pad.lists_are_flat = true;
  Operator transpose = one_to_one("transpose", {{"perm", none}}, permuted);
  transpose.backward = permuted_backward;
  return {
      many_to_one("concat", joined),
      std::move(pad),
      one_to_one("slice",
                 {{"axes", none},
                  {"starts", none},
                  {"ends", none},
                  {"infer_flags", none},
                  {"decrease_axis", none}},
                 part_of),
      one_to_many("split", {{"sections", none}}, split_by_sizes),
      one_to_many("split_with_num", {{"num", std::int64_t{1}}}, split_by_number),
      many_to_one("stack", stacked),
      one_to_one("tile", {{"repeat_times", none}}, repeated),
      std::move(transpose),
      one_to_one("tril_triu", {{"diagonal", std::int64_t{0}}, {"lower", false}}, triangle),
      one_to_one("triu", {{"diagonal", std::int64_t{0}}}, triangle),
      one_to_many("unbind", {}, taken_apart),
  };
}

}  // namespace pipewright::spmd
