// Operators that compute each element of the output from the elements in the same place.
#include "core/spmd/broadcasting.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

std::vector<Shape> shapes_of(const std::vector<TensorArgument>& arguments) {
  std::vector<Shape> shapes;
  for (const TensorArgument& argument : arguments) {
    for (const Tensor& tensor : argument.tensors) shapes.push_back(tensor.shape);
  }
  return shapes;
}

Equation one_tensor(const Operands& operands) {
  const std::string all = letters(operands.rank());
  return {.inputs = {all}, .outputs = {all}, .even = evenly(all, operands.shape())};
}

Equation several_tensors(const Operands& operands) {
  Broadcast notation = broadcast(shapes_of(operands.inputs()));
  return {.inputs = std::move(notation.inputs),
          .outputs = {std::move(notation.output)},
          .outputs_stay = true};
}

Operator unary(std::string_view name, std::vector<AttributeSlot> attributes = {}) {
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"out"}},
          .attributes = std::move(attributes),
          .equation = one_tensor};
}

Operator binary(std::string_view name) {
  return {.name = name,
          .inputs = {{"x"}, {"y"}},
          .outputs = {{"out"}},
          .attributes = {},
          .equation = several_tensors};
}

}  // namespace

std::vector<Operator> pointwise_operators() {
  std::vector<Operator> rows = {
      {.name = "add_n",
       .inputs = {{"inputs", true}},
       .outputs = {{"out"}},
       .attributes = {},
       .equation = several_tensors},
      {.name = "where",
       .inputs = {{"condition"}, {"x"}, {"y"}},
       .outputs = {{"out"}},
       .attributes = {},
       .equation = several_tensors},
      unary("gelu", {{"approximate", false}}),
      unary("pow", {{"factor", 1.0}}),
      unary("scale", {{"scale", 1.0}, {"bias", 0.0}}),
  };
  for (const std::string_view name :
       {"abs",     "assign", "cast",  "ceil", "clip",        "cos",   "erf",
        "exp",     "floor",  "isnan", "log",  "logical_not", "relu",  "rsqrt",
        "sigmoid", "silu",   "sin",   "sqrt", "square",      "swish", "tanh"}) {
    rows.push_back(unary(name));
  }
  for (const std::string_view name :
       {"add", "divide", "elementwise_pow", "equal", "greater_equal", "greater_than", "less_equal",
        "less_than", "maximum", "minimum", "multiply", "not_equal", "subtract", "swiglu"}) {
    rows.push_back(binary(name));
  }
  return rows;
}

}  // namespace pipewright::spmd
