// The operators whose tensors can be divided: a table of rows, each with the tensors and attributes
// that it takes and the equation that follows from them.
#pragma once

#include <string_view>
#include <vector>

#include "core/spmd/equation.hpp"
#include "core/spmd/operator_call.hpp"

namespace pipewright::spmd {

struct Operator {
  std::string_view name;
  std::vector<TensorSlot> inputs = {}, outputs = {};
  std::vector<AttributeSlot> attributes = {};
  Equation (*equation)(const Operands&) = nullptr;
  /// Of inference from outputs to inputs, where it is not the same.
  Equation (*backward)(const Operands&) = nullptr;
  /// Tensors of a list are numbered as if each were an argument.
  bool lists_are_flat = false;
  /// Outputs are always given, because nothing says how many there are.
  bool outputs_are_given = false;
  /// The operator whose inference forward answers where that of this one backward is asked for.
  std::string_view backward_is = {};
};

/// A function of somebody's own on the parts that each process has. How it takes and makes them is
/// annotated at the operator, and no rule says otherwise; by itself it has everything whole.
inline constexpr std::string_view kLocalMap = "local_map";

/// Throws InputError with the nearest names.
const Operator& operator_named(std::string_view name);
/// In alphabetical order.
std::vector<std::string_view> operator_names();

/// The rows by what their operators do to dimensions.
std::vector<Operator> pointwise_operators();    // each element by itself
std::vector<Operator> contracting_operators();  // products that sum over a dimension
std::vector<Operator> reducing_operators();     // a dimension goes, or is needed whole
std::vector<Operator> arranging_operators();    // elements of one tensor in other places
std::vector<Operator> regrouping_operators();   // the same elements in another shape
std::vector<Operator> indexing_operators();     // elements that another tensor chooses
std::vector<Operator> fused_operators();  // several of these in one, with outputs of their own

}  // namespace pipewright::spmd
