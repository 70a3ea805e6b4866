// An operator with the tensors and attributes that it is called with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/spmd/layout.hpp"

namespace pipewright::spmd {

enum class Direction { Forward, Backward };

using Attribute = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>, std::string>;

/// One tensor, or a list of them.
struct TensorArgument {
  std::vector<Tensor> tensors = {};
  bool is_list = false;
};

struct OperatorCall {
  std::string name;
  Direction direction = Direction::Forward;
  ProcessMesh mesh;
  /// Inputs, then outputs; forward only inputs are given, unless the operator has as many outputs
  /// as it is told.
  std::vector<TensorArgument> tensors;
  std::vector<Attribute> attributes;
};

/// A tensor that an operator declares.
struct TensorSlot {
  std::string_view name;
  bool is_list = false;
};

/// An attribute that an operator declares, with the value that it has where it is left out.
struct AttributeSlot {
  std::string_view name;
  Attribute otherwise;
};

/// What an operator's equation may depend on.
class Operands {
 public:
  Operands(std::vector<TensorArgument> inputs, std::vector<TensorArgument> outputs,
           const std::vector<AttributeSlot>& slots, const std::vector<Attribute>& given);

  /// Of the input that stands alone, or first, in this place.
  const Shape& shape(std::size_t input = 0) const;
  std::size_t rank(std::size_t input = 0) const { return shape(input).size(); }
  const std::vector<TensorArgument>& inputs() const { return inputs_; }
  const std::vector<TensorArgument>& outputs() const { return outputs_; }

  bool boolean(std::string_view attribute) const;
  std::int64_t integer(std::string_view attribute) const;
  double number(std::string_view attribute) const;
  std::vector<std::int64_t> integers(std::string_view attribute) const;
  /// An integer that names a dimension out of `rank`, from the end where it is negative. Throws
  /// InputError where there is no such dimension.
  std::size_t axis(std::string_view attribute, std::size_t rank) const;
  std::vector<std::size_t> axes(std::string_view attribute, std::size_t rank) const;

 private:
  const Attribute& value_of(std::string_view attribute) const;

  std::vector<TensorArgument> inputs_, outputs_;
  std::vector<std::pair<std::string_view, Attribute>> attributes_;
};

}  // namespace pipewright::spmd
