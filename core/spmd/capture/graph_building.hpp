// The operator graph as it grows while nodes are captured.
#pragma once

#include <set>

#include "core/spmd/capture/node_reading.hpp"
#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd::capture {

/// A tensor of the graph whose first values the file has.
struct GivenValues {
  std::size_t tensor = 0;
  const onnx::TensorData* initializer = nullptr;  // where there is none, the numbers are:
  std::vector<double> numbers = {};
};

class GraphBuilding {
 public:
  /// What an operator of this rule makes of some values (as one list, if the rule takes a list),
  /// for a node. A shape for each output.
  std::vector<Value> make(const NodeReading& node, const std::string& rule,
                          const std::vector<Value*>& inputs, const std::vector<Shape>& shapes,
                          std::vector<Attribute> attributes = {});
  Value make_one(const NodeReading& node, const std::string& rule,
                 const std::vector<Value*>& inputs, Shape shape,
                 std::vector<Attribute> attributes = {});
  /// Numbers that are known, as a value.
  static Value known(Constant constant, const std::string& name);

  /// The graph's tensor of a value, a new one for what the file gives.
  std::size_t tensor_of(const NodeReading& node, Value& value);
  /// Where it is not that of the first input.
  void give_type(Value& made, DataType type);
  /// What a node made is called as the file calls it.
  void call(const Value& value, const std::string& name);

  OperatorGraph graph = {};
  std::vector<GivenValues> given = {};

 private:
  std::size_t add_tensor(const std::string& name, const Shape& shape, DataType type);
  static std::string free_name(const std::string& name, const std::set<std::string>& taken);

  std::set<std::string> tensors_, operators_;  // their names
};

/// As core/order/element_type calls it; "" where there is none.
std::string type_name(DataType type);

}  // namespace pipewright::spmd::capture
