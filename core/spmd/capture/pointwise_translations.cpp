// Nodes that compute each element by itself.
#include <cmath>

#include "core/spmd/capture/shapes_of_nodes.hpp"
#include "core/spmd/capture/translations.hpp"

namespace pipewright::spmd::capture {
namespace {

/// A rule that takes and makes the same shape; its name is the node's, or stands here.
struct UnaryRow {
  std::string_view type, rule;
};
constexpr UnaryRow kUnaryRows[] = {
    {"Abs", "abs"},         {"Ceil", "ceil"},   {"Cos", "cos"},         {"Erf", "erf"},
    {"Exp", "exp"},         {"Floor", "floor"}, {"IsNaN", "isnan"},     {"Log", "log"},
    {"Not", "logical_not"}, {"Relu", "relu"},   {"Sigmoid", "sigmoid"}, {"Sin", "sin"},
    {"Sqrt", "sqrt"},       {"Swish", "silu"},  {"Tanh", "tanh"},
};

Outputs of_one(const NodeReading& node, GraphBuilding& graph) {
  for (const UnaryRow& row : kUnaryRows) {
    if (row.type != node.node().type) continue;
    if (node.number_attribute("alpha", 1) != 1) node.fail("is captured with an alpha of 1");
    Value& x = node.input(0);
    Value made = graph.make_one(node, std::string(row.rule), {&x}, x.shape);
    if (row.rule == "isnan") graph.give_type(made, DataType::Bool);
    return {made};
  }
  node.fail("is no node of one tensor");
}

Value scaled(const NodeReading& node, GraphBuilding& graph, Value& x, double scale, double bias) {
  return graph.make_one(node, "scale", {&x}, x.shape, {scale, bias});
}

Value powered(const NodeReading& node, GraphBuilding& graph, Value& x, double exponent) {
  if (exponent == 2) return graph.make_one(node, "square", {&x}, x.shape);
  if (exponent == 0.5) return graph.make_one(node, "sqrt", {&x}, x.shape);
  if (exponent == -0.5) return graph.make_one(node, "rsqrt", {&x}, x.shape);
  return graph.make_one(node, "pow", {&x}, x.shape, {exponent});
}

Outputs negated(const NodeReading& node, GraphBuilding& graph) {
  return {scaled(node, graph, node.input(0), -1, 0)};
}

Outputs inverted(const NodeReading& node, GraphBuilding& graph) {
  return {powered(node, graph, node.input(0), -1)};
}

Outputs gelu(const NodeReading& node, GraphBuilding& graph) {
  const bool approximate = node.text_attribute("approximate", "none") == "tanh";
  return {graph.make_one(node, "gelu", {&node.input(0)}, node.input(0).shape, {approximate})};
}

// --- Of two, one of which may be a number -------------------------------------------------------

struct BinaryRow {
  std::string_view type, rule;
  /// Of a number on the right or on the left of x; null where that is no simpler.
  Value (*with_right)(const NodeReading&, GraphBuilding&, Value& x, double) = nullptr;
  Value (*with_left)(const NodeReading&, GraphBuilding&, double, Value& x) = nullptr;
};

constexpr BinaryRow kBinaryRows[] = {
    {"Add", "add",
     [](const NodeReading& node, GraphBuilding& graph, Value& x, double y) {
       return scaled(node, graph, x, 1, y);
     },
     [](const NodeReading& node, GraphBuilding& graph, double y, Value& x) {
       return scaled(node, graph, x, 1, y);
     }},
    {"Div", "divide",
     [](const NodeReading& node, GraphBuilding& graph, Value& x, double y) {
       return scaled(node, graph, x, 1 / y, 0);
     },
     [](const NodeReading& node, GraphBuilding& graph, double y, Value& x) {
       Value inverse = powered(node, graph, x, -1);
       return y == 1 ? inverse : scaled(node, graph, inverse, y, 0);
     }},
    {"Mul", "multiply",
     [](const NodeReading& node, GraphBuilding& graph, Value& x, double y) {
       return scaled(node, graph, x, y, 0);
     },
     [](const NodeReading& node, GraphBuilding& graph, double y, Value& x) {
       return scaled(node, graph, x, y, 0);
     }},
    {"Pow", "elementwise_pow",
     [](const NodeReading& node, GraphBuilding& graph, Value& x, double y) {
       return powered(node, graph, x, y);
     }},
    {"Sub", "subtract",
     [](const NodeReading& node, GraphBuilding& graph, Value& x, double y) {
       return scaled(node, graph, x, 1, -y);
     },
     [](const NodeReading& node, GraphBuilding& graph, double y, Value& x) {
       return scaled(node, graph, x, -1, y);
     }},
};

/// A number that is finite and leaves the other one's shape as it is.
std::optional<double> number_beside(const Value& value, const Value& other) {
  const bool is_number = value.constant && value.constant->values.size() == 1 &&
                         value.shape.size() <= other.shape.size();
  if (!is_number || !std::isfinite(value.constant->values[0])) return std::nullopt;
  return value.constant->values[0];
}

Outputs of_two(const NodeReading& node, GraphBuilding& graph) {
  Value &x = node.input(0), &y = node.input(1);
  for (const BinaryRow& row : kBinaryRows) {
    if (row.type != node.node().type) continue;
    const bool is_whole = !onnx::is_float(x.type);
    const auto right = number_beside(y, x), left = number_beside(x, y);
    if (row.with_right != nullptr && right && !is_whole && !(row.type == "Div" && *right == 0)) {
      return {row.with_right(node, graph, x, *right)};
    }
    if (row.with_left != nullptr && left && !is_whole)
      return {row.with_left(node, graph, *left, y)};
    return {
        graph.make_one(node, std::string(row.rule), {&x, &y}, broadcast(node, x.shape, y.shape))};
  }
  node.fail("is no node of two tensors");
}

Outputs larger_or_smaller(const NodeReading& node, GraphBuilding& graph) {
  const std::string rule = node.node().type == "Max" ? "maximum" : "minimum";
  Value* so_far = &node.input(0);
  Value made;
  for (std::size_t input = 1; input < node.inputs(); ++input) {
    Value& next = node.input(input);
    made = graph.make_one(node, rule, {so_far, &next}, broadcast(node, so_far->shape, next.shape));
    so_far = &made;
  }
  return {*so_far};
}

Outputs sum(const NodeReading& node, GraphBuilding& graph) {
  std::vector<Value*> inputs;
  Shape shape = node.input(0).shape;
  for (std::size_t input = 0; input < node.inputs(); ++input) {
    inputs.push_back(&node.input(input));
    shape = broadcast(node, shape, inputs.back()->shape);
  }
  return {graph.make_one(node, "add_n", inputs, shape)};
}

Outputs compared(const NodeReading& node, GraphBuilding& graph) {
  constexpr UnaryRow kRules[] = {{"Equal", "equal"},
                                 {"Greater", "greater_than"},
                                 {"GreaterOrEqual", "greater_equal"},
                                 {"Less", "less_than"},
                                 {"LessOrEqual", "less_equal"}};
  Value &x = node.input(0), &y = node.input(1);
  for (const UnaryRow& row : kRules) {
    if (row.type != node.node().type) continue;
    Value made =
        graph.make_one(node, std::string(row.rule), {&x, &y}, broadcast(node, x.shape, y.shape));
    graph.give_type(made, DataType::Bool);
    return {made};
  }
  node.fail("is no comparison");
}

Outputs choice(const NodeReading& node, GraphBuilding& graph) {
  Value &condition = node.input(0), &x = node.input(1), &y = node.input(2);
  const Shape shape = broadcast(node, broadcast(node, condition.shape, x.shape), y.shape);
  Value made = graph.make_one(node, "where", {&condition, &x, &y}, shape);
  graph.give_type(made, x.type);
  return {made};
}

Outputs same(const NodeReading& node, GraphBuilding&) { return {node.input(0)}; }

/// Nothing is left out where a model is not trained by its own framework.
Outputs kept(const NodeReading& node, GraphBuilding&) {
  if (node.has(2) && node.integer(2) != 0 && (!node.has(1) || node.number(1) != 0)) {
    node.fail("leaves elements out at random; export the model in its evaluation mode");
  }
  return {node.input(0)};
}

Outputs cast(const NodeReading& node, GraphBuilding& graph) {
  const auto type = node.node().type == "CastLike" ? node.input(1).type
                                                   : static_cast<DataType>(node.attribute("to", 0));
  Value& x = node.input(0);
  if (type_name(type).empty()) node.fail("makes a type that graphs do not have");
  if (type == x.type) return {x};
  Value made = graph.make_one(node, "cast", {&x}, x.shape);
  graph.give_type(made, type);
  return {made};
}

}  // namespace

std::vector<Translation> pointwise_translations() {
  std::vector<Translation> rows = {
      {"Cast", cast},
      {"CastLike", cast},
      {"Dropout", kept},
      {"Gelu", gelu},
      {"Identity", same},
      {"Max", larger_or_smaller},
      {"Min", larger_or_smaller},
      {"Neg", negated},
      {"Reciprocal", inverted},
      {"Sum", sum},
      {"Where", choice},
  };
  for (const UnaryRow& row : kUnaryRows) rows.push_back({row.type, of_one});
  for (const BinaryRow& row : kBinaryRows) rows.push_back({row.type, of_two});
  for (const char* type : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
    rows.push_back({type, compared});
  }
  return rows;
}

}  // namespace pipewright::spmd::capture
