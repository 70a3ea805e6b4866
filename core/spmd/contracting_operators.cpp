// Products that sum over a dimension of their inputs: where that is divided, each process has a
// partial sum.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/broadcasting.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// The rows and columns of an operand as the product sees them.
Shape as_multiplied(Shape shape, bool transposed, std::string_view name) {
  if (shape.empty()) throw InputError(std::string(name) + ": a factor has one dimension or more");
  if (!transposed) return shape;
  if (shape.size() < 2) {
    throw InputError(std::string(name) + ": a vector cannot be transposed");
  }
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

/// x is [..., m, k] and y is [..., k, n], each before it is transposed as said; a vector has k
/// alone.
Equation matrix_product(const Operands& operands) {
  const bool transposed_x = operands.boolean("trans_x"), transposed_y = operands.boolean("trans_y");
  const Shape x = as_multiplied(operands.shape(0), transposed_x, "x");
  const Shape y = as_multiplied(operands.shape(1), transposed_y, "y");
  const bool x_is_vector = x.size() == 1, y_is_vector = y.size() == 1;
  const std::int64_t k = x.back(), k_of_y = y[y_is_vector ? 0 : y.size() - 2];
  if (k != k_of_y) {
    throw InputError("x has " + std::to_string(k) +
                     " elements in the dimension that is summed, y " + std::to_string(k_of_y));
  }
  const auto batch_of = [](const Shape& shape) {
    return Shape(shape.begin(),
                 shape.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(2, shape.size())));
  };
  const Broadcast batch = broadcast({batch_of(x), batch_of(y)});
  std::string of_x = x_is_vector ? "K" : "MK", of_y = y_is_vector ? "K" : "KN";
  if (transposed_x) std::swap(of_x[0], of_x[1]);
  if (transposed_y) std::swap(of_y[0], of_y[1]);
  auto even = evenly(batch.output, batch.shape);
  even.emplace_back('K', k);
  return {.inputs = {batch.inputs[0] + of_x, batch.inputs[1] + of_y},
          .outputs = {batch.output + (x_is_vector ? "" : "M") + (y_is_vector ? "" : "N")},
          .merging = Merging::Together,
          .even = std::move(even),
          .preferred = {batch.output, "MN"},
          .outputs_stay = true};
}

Equation matrix_product_backward(const Operands& operands) {
  Equation equation = matrix_product(operands);
  equation.exclusive = true;
  equation.even = evenly(equation.outputs[0], operands.outputs().front().tensors.front().shape);
  return equation;
}

/// Gradients of a linear layer's weight (x' * dout) and bias, added to those that are there. The
/// bias needs dout alone, as it came.
Equation weight_gradient(const Operands& operands) {
  if (operands.rank(0) < 2) throw InputError("x: has no rows");
  const std::string rows = letters(operands.rank(0) - 1);
  const auto accumulated = [&](std::size_t input, std::string own) {
    return operands.rank(input) == 0 ? std::string() : std::move(own);
  };
  const Shape& x = operands.shape(0);
  return {.inputs = {rows + "K", rows + "N", accumulated(2, "KN"), accumulated(3, "N")},
          .outputs = {"KN", operands.boolean("has_bias") ? "N" : ""},
          .merging = Merging::Together,
          .even = evenly(rows, x),
          .preferred = {rows.substr(0, rows.size() - 1), "KN"},
          .summed = {rows, operands.boolean("has_bias") ? rows : ""},
          .from_input_as_it_came = {{1, 1}}};
}

/// [batch, channels, …] with a filter of [outputs, channels, …]: the places of an image are needed
/// with their neighbours, so they stay whole.
Equation convolution(const Operands& operands) {
  if (operands.rank(0) < 3) throw InputError("input: an image has three dimensions or more");
  const std::string places(operands.rank(0) - 2, kUndivided);
  return {.inputs = {"NC" + places, "OC" + places}, .outputs = {"NO" + places}, .agreeing = "C"};
}

}  // namespace

std::vector<Operator> contracting_operators() {
  return {
      {.name = "conv2d",
       .inputs = {{"input"}, {"filter"}},
       .outputs = {{"out"}},
       .attributes = {},
       .equation = convolution},
      {.name = "fused_linear_param_grad_add",
       .inputs = {{"x"}, {"dout"}, {"dweight"}, {"dbias"}},
       .outputs = {{"dweight_out"}, {"dbias_out"}},
       .attributes = {{"multi_precision", std::int64_t{0}}, {"has_bias", true}},
       .equation = weight_gradient},
      {.name = "matmul",
       .inputs = {{"x"}, {"y"}},
       .outputs = {{"out"}},
       .attributes = {{"trans_x", false}, {"trans_y", false}},
       .equation = matrix_product,
       .backward = matrix_product_backward},
  };
}

}  // namespace pipewright::spmd
