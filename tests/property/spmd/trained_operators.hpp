// The operators that `spmd run` computes, on small arrays: each as its definition says, and cases
// of it to be divided in every way.
#pragma once

#include "tests/property/spmd/small_operators.hpp"

namespace pipewright::spmd::test {

struct TrainedCase {
  OperatorCase one;  // compute is left out where inputs are whole numbers
  /// What is made of an input first: "relu", so that half of it is 0; "scale", so that it lies
  /// between 1 and 2; "floor", of four times as much, so that it is a whole number from -4 to 3; by
  /// place, "" and no more where nothing is.
  std::vector<std::string> before = {};
  std::vector<std::string> types = {};    // of inputs, "float32" where left out
  std::vector<std::size_t> outputs = {};  // that have a gradient; all, if none is named
};

std::vector<TrainedCase> trained_cases();

}  // namespace pipewright::spmd::test
