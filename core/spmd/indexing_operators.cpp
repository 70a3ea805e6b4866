// Operators in which one tensor chooses elements of another.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// Rows of a table, chosen by ids of any shape. A process that has some of the rows leaves zeros
/// for the others.
Equation rows_of_table(std::size_t id_dims, bool table_first) {
  const std::string ids = letters(id_dims);
  Equation equation{.inputs = {ids, "VD"}, .outputs = {ids + "D"}, .exclusive = true};
  if (table_first) std::swap(equation.inputs[0], equation.inputs[1]);
  return equation;
}

Equation lookup(const Operands& operands) {
  Equation equation = rows_of_table(operands.rank(0), false);
  if (operands.boolean("sparse")) {
    equation.refused.emplace_back('V', "sparse gradients need all rows of the table");
  } else if (operands.integer("padding_idx") != -1) {
    equation.refused.emplace_back('V', "the row of padding_idx has to be known to all");
  }
  return equation;
}

Equation lookup_in_part(const Operands& operands) { return rows_of_table(operands.rank(1), true); }

/// The gradient of the table lies as the table does; over the ids it is a partial sum.
Equation table_gradient(const Operands& operands) {
  const std::string ids = letters(operands.rank(1));
  return {.inputs = {"VD", ids, ids + "D"}, .outputs = {"VD"}, .exclusive = true};
}

/// out has the dimensions of index in place of one of x.
Equation gathered(const Operands& operands) {
  const std::size_t axis = operands.axis("axis", operands.rank(0));
  if (operands.rank(1) == 0) throw InputError("index: one position is an index of one element");
  const std::string chosen = letters(operands.rank(1));
  std::string of_x = letters(operands.rank(0), chosen.size()), out = of_x;
  out.replace(axis, 1, chosen);
  of_x[axis] = kUndivided;
  return {.inputs = {of_x, chosen}, .outputs = {out}, .outputs_stay = true, .staying = {1}};
}

/// An index of one dimension holds positions in the first dimension of x.
Equation positions(const Operands& operands) {
  if (operands.rank(0) < 1) throw InputError("x: has no dimension to choose from");
  const std::string chosen = letters(1), rest = letters(operands.rank(0) - 1, 1);
  return {.inputs = {kUndivided + rest, chosen}, .outputs = {chosen + rest}};
}

/// The last dimension of index holds coordinates in the first dimensions of x.
Equation gathered_by_coordinates(const Operands& operands) {
  const Shape& index = operands.shape(1);
  if (index.empty()) throw InputError("index: has no dimension for coordinates");
  if (index.size() == 1) return positions(operands);
  if (index.back() < 0 || static_cast<std::size_t>(index.back()) > operands.rank(0)) {
    throw InputError("index: has " + std::to_string(index.back()) + " coordinates, and x " +
                     std::to_string(operands.rank(0)) + " dimensions");
  }
  const auto coordinates = static_cast<std::size_t>(index.back());
  const std::string chosen = letters(index.size() - 1);
  const std::string rest = letters(operands.rank(0) - coordinates, chosen.size());
  return {.inputs = {std::string(coordinates, kUndivided) + rest, chosen + kUndivided},
          .outputs = {chosen + rest}};
}

/// Rows of updates go to the rows of x that index names; each process has written or added some of
/// them, so the sum of what they changed is the result.
Equation scattered(const Operands& operands) {
  const std::string rows = letters(operands.rank(1));
  if (operands.rank(0) < 1) throw InputError("x: has no rows");
  const std::string rest = letters(operands.rank(0) - 1, rows.size());
  return {.inputs = {kUndivided + rest, rows, rows + rest},
          .outputs = {kUndivided + rest},
          .heard = {1, 2}};
}

Equation scattered_backward(const Operands& operands) {
  Equation equation = scattered(operands);
  equation.heard.clear();
  return equation;
}

Equation one_hot(const Operands& operands) {
  const std::string all = letters(operands.rank());
  return {.inputs = {all}, .outputs = {all + kUndivided}};
}

Operator scattering(std::string_view name) {
  return {.name = name,
          .inputs = {{"x"}, {"index"}, {"updates"}},
          .outputs = {{"out"}},
          .attributes = {{"overwrite", true}},
          .equation = scattered,
          .backward = scattered_backward};
}

Operator lookup_of(std::string_view name) {
  return {.name = name,
          .inputs = {{"x"}, {"weight"}},
          .outputs = {{"out"}},
          .attributes = {{"padding_idx", std::int64_t{-1}}, {"sparse", false}},
          .equation = lookup};
}

}  // namespace

std::vector<Operator> indexing_operators() {
  return {
      {.name = "c_embedding",
       .inputs = {{"weight"}, {"x"}},
       .outputs = {{"out"}},
       .attributes = {{"start_index", std::int64_t{0}}, {"vocab_size", std::int64_t{-1}}},
       .equation = lookup_in_part,
       .backward_is = "c_embedding_grad"},
      {.name = "c_embedding_grad",
       .inputs = {{"weight"}, {"x"}, {"out_grad"}},
       .outputs = {{"weight_grad"}},
       .attributes = {{"start_index", std::int64_t{0}}, {"vocab_size", std::int64_t{-1}}},
       .equation = table_gradient},
      lookup_of("embedding"),
      {.name = "gather",
       .inputs = {{"x"}, {"index"}},
       .outputs = {{"out"}},
       .attributes = {{"axis", std::int64_t{0}}},
       .equation = gathered},
      {.name = "gather_nd",
       .inputs = {{"x"}, {"index"}},
       .outputs = {{"out"}},
       .attributes = {},
       .equation = gathered_by_coordinates},
      lookup_of("lookup_table_v2"),
      {.name = "one_hot",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {{"num_classes", std::int64_t{1}}},
       .equation = one_hot},
      scattering("scatter"),
      scattering("scatter_nd_add"),
  };
}

}  // namespace pipewright::spmd
