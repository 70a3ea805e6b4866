// From the layouts of an operator's inputs to those it computes with and those of its outputs
// (forward), or from the outputs' to the inputs' (backward).
#pragma once

#include <string>
#include <vector>

#include "core/spmd/equation.hpp"
#include "core/spmd/operator_call.hpp"

namespace pipewright::spmd {

/// The layout of one tensor, by its place among the inputs or outputs: "0", or "0.1" in a list.
struct PlacedLayout {
  std::string place;
  Layout layout;

  bool operator==(const PlacedLayout&) const = default;
};

struct Inference {
  std::vector<PlacedLayout> inputs, outputs;
};

/// Inputs that are Partial are summed first. Throws InputError, "matmul: …", with the tensors'
/// names: a call that does not fit the operator, layouts that contradict each other.
Inference infer(const OperatorCall& call);

/// What the operator does to the dimensions of its tensors, forward. Throws InputError as infer()
/// does.
Equation equation_of(const OperatorCall& call);

}  // namespace pipewright::spmd
