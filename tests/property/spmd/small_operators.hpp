// Operators on small arrays, written for the eye, and cases of them to be divided in every way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/spmd/operator_call.hpp"

namespace pipewright::spmd::test {

/// Row major.
struct Array {
  Shape shape = {};
  std::vector<double> values = {};

  double& at(const Shape& index);
  double at(const Shape& index) const;
};

Array zeros(Shape shape);
/// Calls `act` with each index of a shape, the last dimension fastest.
void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& act);

/// An operator with the arrays of one process, or with whole ones.
struct Computation {
  std::vector<Array> inputs;
  std::vector<Shape> offsets;  // of the inputs in the whole tensors
  std::vector<Shape> outputs;  // shapes
};

/// Each element of the only output from its index.
std::vector<Array> filled(const Computation& c, const std::function<double(const Shape&)>& value);
/// The element of a tensor that is repeated where it has size 1, aligned at the last dimensions.
double broadcast_at(const Array& array, const Shape& index);

/// Where the head and the token stand among the four dimensions of attention.
struct HeadAxes {
  std::size_t head, token;
};

struct OperatorCase {
  std::string name;
  std::vector<Shape> inputs;
  std::vector<Shape> outputs;
  std::vector<Attribute> attributes;
  std::function<std::vector<Array>(const Computation&)> compute;
  /// Values of an input are whole numbers below this; the default suits all but indices.
  std::vector<int> below = {};
  bool inputs_are_a_list = false;
  /// Inputs that the rule does not hear: their layout changes nothing, so they are tried whole
  /// alone.
  std::vector<std::size_t> unheard = {};
};

std::vector<OperatorCase> operator_cases();

}  // namespace pipewright::spmd::test
