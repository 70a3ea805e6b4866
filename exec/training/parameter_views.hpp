// Looks at what a stage trains, wherever it is asked for: comparisons, checkpoints. All lie in host
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/model/tensor_split.hpp"

namespace pipewright::exec {

/// A look at one parameter; valid while its stage lives and nobody trains it.
struct ParameterView {
  std::string name;  // unique in the model, the same whatever the partition
  std::span<const float> value, gradient;
  bool is_copy = false;        // of another stage's parameter, of the same name
  bool is_of_experts = false;  // of which other replicas hold others
  Slice slice = {};            // which elements of the parameter these are; ranks may divide it
  /// Where replicas hold parts of the two: the elements that they begin with, and of how many.
  std::size_t first_value = 0, first_gradient = 0, elements = 0;
};

/// One array of a stage's state, or the part of it that is kept here: the elements from `first` on
/// of `total`, which are themselves a part where ranks divide the array. Valid while its stage
/// lives.
struct StateView {
  std::string parameter;
  std::string_view slot;  // kValueSlot, or the optimizer's name for it
  std::int64_t first = 0, total = 0;
  bool is_shared_out = false;  // replicas keep a part each, which may be all or nothing
  std::span<float> values;
  bool is_copy = false;        // of another stage's, or replica's, which has the same
  bool is_of_experts = false;  // of which other replicas hold others
  Slice slice = {};            // which elements of the whole array the `total` are
};

}  // namespace pipewright::exec
