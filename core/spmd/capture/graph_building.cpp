#include "core/spmd/capture/graph_building.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd::capture {
namespace {

/// Printable, and not longer than names of graphs are.
std::string printable(const std::string& name) {
  constexpr std::size_t kLongest = 180;
  std::string text = name.substr(name.size() > kLongest ? name.size() - kLongest : 0);
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '_';
  }
  return text.empty() ? "unnamed" : text;
}

}  // namespace

std::string type_name(DataType type) {
  switch (type) {
    case DataType::Float:
      return "float32";
    case DataType::Double:
      return "float64";
    case DataType::Float16:
      return "float16";
    case DataType::Bfloat16:
      return "bfloat16";
    case DataType::Int64:
      return "int64";
    case DataType::Int32:
      return "int32";
    case DataType::Int16:
      return "int16";
    case DataType::Int8:
      return "int8";
    case DataType::Uint8:
      return "uint8";
    case DataType::Bool:
      return "bool";
    default:
      return "";
  }
}

std::string GraphBuilding::free_name(const std::string& name, const std::set<std::string>& taken) {
  const std::string wanted = printable(name);
  std::string free = wanted;
  for (int number = 2; taken.count(free) > 0; ++number)
    free = wanted + "." + std::to_string(number);
  return free;
}

std::size_t GraphBuilding::add_tensor(const std::string& name, const Shape& shape, DataType type) {
  const std::string free = free_name(name, tensors_);
  tensors_.insert(free);
  graph.tensors.push_back(
      {.name = free, .shape = shape, .type = type_name(type), .annotation = {}});
  return graph.tensors.size() - 1;
}

std::size_t GraphBuilding::tensor_of(const NodeReading& node, Value& value) {
  if (value.tensor) return *value.tensor;
  if (type_name(value.type).empty()) {
    node.fail("its input \"" + value.name + "\" has a type that graphs do not have");
  }
  value.shape = node.checked(value.shape);
  const bool is_weight = value.initializer != nullptr && value.is_trained;
  const bool is_known = value.constant || value.initializer != nullptr;
  value.tensor = add_tensor(value.name, value.shape, value.type);
  graph.tensors[*value.tensor].role = is_weight  ? TensorRole::Parameter
                                      : is_known ? TensorRole::Constant
                                                 : TensorRole::Activation;
  if (value.initializer != nullptr) {
    given.push_back({.tensor = *value.tensor, .initializer = value.initializer});
  } else if (value.constant) {
    given.push_back({.tensor = *value.tensor, .numbers = value.constant->values});
  }
  return *value.tensor;
}

std::vector<Value> GraphBuilding::make(const NodeReading& node, const std::string& rule,
                                       const std::vector<Value*>& inputs,
                                       const std::vector<Shape>& shapes,
                                       std::vector<Attribute> attributes) {
  const Operator& row = operator_named(rule);
  GraphOperator one{.name = "", .rule = rule, .inputs = {}, .outputs = {}};
  const auto add = [](std::vector<GraphArgument>& arguments, bool is_list, std::size_t tensor) {
    if (!is_list || arguments.empty()) arguments.push_back({.tensors = {}, .is_list = is_list});
    arguments.back().tensors.emplace_back(tensor);
  };
  for (Value* input : inputs) add(one.inputs, row.inputs.front().is_list, tensor_of(node, *input));
  std::vector<Value> made;
  const std::string base = node.node().outputs.empty() ? rule : node.node().outputs.front();
  for (const Shape& shape : shapes) {
    Value value{.shape = node.checked(shape), .type = inputs.front()->type};
    value.tensor = add_tensor(base + "." + rule, value.shape, value.type);
    value.name = graph.tensors[*value.tensor].name;
    add(one.outputs, row.outputs.front().is_list, *value.tensor);
    made.push_back(std::move(value));
  }
  one.name = free_name(node.node().name.empty() ? base : node.node().name, operators_);
  operators_.insert(one.name);
  one.attributes = std::move(attributes);
  if (graph.operators.size() == kMostOperators || graph.tensors.size() >= kMostTensors) {
    node.fail("is one too many: a graph has at most 10000 operators and tensors");
  }
  try {
    require_shapes(graph, one);
  } catch (const InputError& error) {
    node.fail(error.message());
  }
  graph.operators.push_back(std::move(one));
  return made;
}

Value GraphBuilding::make_one(const NodeReading& node, const std::string& rule,
                              const std::vector<Value*>& inputs, Shape shape,
                              std::vector<Attribute> attributes) {
  return make(node, rule, inputs, {std::move(shape)}, std::move(attributes)).front();
}

Value GraphBuilding::known(Constant constant, const std::string& name) {
  Value value{.name = name, .shape = constant.shape, .type = constant.type};
  value.constant = std::move(constant);
  return value;
}

void GraphBuilding::give_type(Value& made, DataType type) {
  made.type = type;
  graph.tensors[*made.tensor].type = type_name(type);
}

void GraphBuilding::call(const Value& value, const std::string& name) {
  GraphTensor& tensor = graph.tensors[*value.tensor];
  tensors_.erase(tensor.name);
  tensor.name = free_name(name, tensors_);
  tensors_.insert(tensor.name);
}

}  // namespace pipewright::spmd::capture
