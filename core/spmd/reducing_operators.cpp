// Operators that need a dimension whole, or leave partial results where it is divided.
#include <algorithm>

#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// `all` without the letters of `axes`, or with dimensions of size 1 in their place.
std::string without(const std::string& all, const std::vector<std::size_t>& axes, bool left) {
  std::string rest;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (std::find(axes.begin(), axes.end(), at) == axes.end()) {
      rest += all[at];
    } else if (left) {
      rest += kSizeOne;
    }
  }
  return rest;
}

std::vector<std::size_t> every_axis(std::size_t rank) {
  std::vector<std::size_t> axes(rank);
  for (std::size_t at = 0; at < rank; ++at) axes[at] = at;
  return axes;
}

Equation reduction_over(const Operands& operands, const std::vector<std::size_t>& axes,
                        Reduction reduction) {
  const std::string all = letters(operands.rank());
  Equation equation{.inputs = {all},
                    .outputs = {without(all, axes, operands.boolean("keepdim"))},
                    .outputs_stay = true,
                    .reduction = reduction};
  if (reduction == Reduction::Average) {  // the mean of means counts parts of one size alone
    for (const std::size_t axis : axes) {
      equation.even.emplace_back(all[axis], operands.shape()[axis]);
    }
  }
  return equation;
}

/// Over "axis", over all dimensions if it is empty.
template <Reduction reduction>
Equation over_axes(const Operands& operands) {
  std::vector<std::size_t> axes = operands.axes("axis", operands.rank());
  if (axes.empty()) axes = every_axis(operands.rank());
  return reduction_over(operands, axes, reduction);
}

Equation log_sum_exp(const Operands& operands) {
  if (!operands.boolean("reduce_all")) return over_axes<Reduction::LogSumExp>(operands);
  return reduction_over(operands, every_axis(operands.rank()), Reduction::LogSumExp);
}

Equation norm(const Operands& operands) {
  if (operands.boolean("asvector")) {
    return reduction_over(operands, every_axis(operands.rank()), Reduction::Norm);
  }
  return reduction_over(operands, {operands.axis("axis", operands.rank())}, Reduction::Norm);
}

/// The place of the largest element is known to who has them all.
Equation place_of_largest(const Operands& operands) {
  const std::string all = letters(operands.rank());
  std::vector<std::size_t> axes = every_axis(operands.rank());
  if (!operands.boolean("flatten")) axes = {operands.axis("axis", operands.rank())};
  std::string whole;
  for (const std::size_t axis : axes) whole += all[axis];
  std::string out = without(all, axes, operands.boolean("keepdim"));
  if (operands.boolean("flatten") && !operands.boolean("keepdim")) out = kSizeOne;
  return {.inputs = {all}, .outputs = {std::move(out)}, .whole = std::move(whole)};
}

Equation whole_along(const Operands& operands, std::size_t axis) {
  const std::string all = letters(operands.rank());
  return {.inputs = {all}, .outputs = {all}, .whole = std::string(1, all[axis])};
}

/// The largest or smallest of each line, and where they are.
Equation first_of_line(const Operands& operands) {
  Equation equation = whole_along(operands, operands.axis("axis", operands.rank()));
  equation.outputs.push_back(equation.outputs.front());
  return equation;
}

Equation running_sum(const Operands& operands) {
  if (operands.boolean("flatten")) {
    return {.inputs = {std::string(operands.rank(), kUndivided)},
            .outputs = {std::string(1, kUndivided)}};
  }
  return whole_along(operands, operands.axis("axis", operands.rank()));
}

Equation shares_along_axis(const Operands& operands) {
  Equation equation = whole_along(operands, operands.axis("axis", operands.rank()));
  return equation;
}

Equation shares_along_axis_backward(const Operands& operands) {
  Equation equation = shares_along_axis(operands);
  equation.even = evenly(equation.inputs[0], operands.shape());
  return equation;
}

/// How many elements are not zero is known to who has them all.
Equation places_of_nonzero(const Operands& operands) {
  return {.inputs = {std::string(operands.rank(), kSizeOne)},
          .outputs = {std::string(2, kSizeOne)}};
}

Operator reducing(std::string_view name, Equation (*equation)(const Operands&)) {
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"out"}},
          .attributes = {{"axis", std::vector<std::int64_t>{}}, {"keepdim", false}},
          .equation = equation};
}

}  // namespace

std::vector<Operator> reducing_operators() {
  Operator logsumexp = reducing("logsumexp", log_sum_exp);
  logsumexp.attributes.push_back({"reduce_all", false});
  return {
      reducing("all", over_axes<Reduction::All>),
      reducing("any", over_axes<Reduction::Any>),
      std::move(logsumexp),
      reducing("max", over_axes<Reduction::Maximum>),
      reducing("mean", over_axes<Reduction::Average>),
      reducing("min", over_axes<Reduction::Minimum>),
      reducing("prod", over_axes<Reduction::Product>),
      reducing("squared_l2_norm", over_axes<Reduction::Sum>),
      reducing("sum", over_axes<Reduction::Sum>),
      {.name = "argmax",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {{"axis", std::int64_t{-1}}, {"keepdim", false}, {"flatten", false}},
       .equation = place_of_largest},
      {.name = "cumsum",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {{"axis", std::int64_t{-1}},
                      {"flatten", false},
                      {"exclusive", false},
                      {"reverse", false}},
       .equation = running_sum},
      {.name = "nonzero",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {},
       .equation = places_of_nonzero},
      {.name = "p_norm",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {{"porder", 2.0},
                      {"axis", std::int64_t{-1}},
                      {"epsilon", 1e-12},
                      {"keepdim", false},
                      {"asvector", false}},
       .equation = norm},
      {.name = "softmax",
       .inputs = {{"x"}},
       .outputs = {{"out"}},
       .attributes = {{"axis", std::int64_t{-1}}},
       .equation = shares_along_axis,
       .backward = shares_along_axis_backward},
      {.name = "topk",
       .inputs = {{"x"}},
       .outputs = {{"out"}, {"indices"}},
       .attributes = {{"k", std::int64_t{1}},
                      {"axis", std::int64_t{-1}},
                      {"largest", true},
                      {"sorted", true}},
       .equation = first_of_line},
  };
}

}  // namespace pipewright::spmd
