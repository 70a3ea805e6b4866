// Nodes that sum over a dimension: products, means, norms, losses.
#include <charconv>
#include <cmath>

#include "core/spmd/capture/shapes_of_nodes.hpp"
#include "core/spmd/capture/translations.hpp"

namespace pipewright::spmd::capture {
namespace {

using Integers = std::vector<std::int64_t>;

Outputs product(const NodeReading& node, GraphBuilding& graph) {
  Value &x = node.input(0), &y = node.input(1);
  if (x.shape.size() < 2 || y.shape.size() < 2) {
    node.fail("is captured with matrices, and has a vector");
  }
  Shape shape = broadcast(node, Shape(x.shape.begin(), x.shape.end() - 2),
                          Shape(y.shape.begin(), y.shape.end() - 2));
  shape.insert(shape.end(), {x.shape[x.shape.size() - 2], y.shape.back()});
  return {graph.make_one(node, "matmul", {&x, &y}, shape, {false, false})};
}

Value scaled(const NodeReading& node, GraphBuilding& graph, Value& x, double factor) {
  return factor == 1 ? x : graph.make_one(node, "scale", {&x}, x.shape, {factor, 0.0});
}

/// alpha · x · y + beta · bias
Outputs product_and_sum(const NodeReading& node, GraphBuilding& graph) {
  Value &x = node.input(0), &y = node.input(1);
  const bool turns_x = node.attribute("transA", 0) != 0, turns_y = node.attribute("transB", 0) != 0;
  if (x.shape.size() != 2 || y.shape.size() != 2) node.fail("is of matrices");
  const Shape shape = {x.shape[turns_x ? 1 : 0], y.shape[turns_y ? 0 : 1]};
  Value made = graph.make_one(node, "matmul", {&x, &y}, shape, {turns_x, turns_y});
  made = scaled(node, graph, made, node.number_attribute("alpha", 1));
  if (!node.has(2)) return {made};
  Value bias = scaled(node, graph, node.input(2), node.number_attribute("beta", 1));
  return {graph.make_one(node, "add", {&made, &bias}, broadcast(node, shape, bias.shape))};
}

Shape reduced(const Shape& shape, const std::set<std::size_t>& axes, bool keeps) {
  Shape rest;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axes.count(axis) == 0) rest.push_back(shape[axis]);
    if (axes.count(axis) > 0 && keeps) rest.push_back(1);
  }
  return rest;
}

Value reduced(const NodeReading& node, GraphBuilding& graph, const std::string& rule, Value& x,
              const std::set<std::size_t>& axes, bool keeps) {
  return graph.make_one(node, rule, {&x}, reduced(x.shape, axes, keeps),
                        {Integers(axes.begin(), axes.end()), keeps});
}

Outputs reduction(const NodeReading& node, GraphBuilding& graph) {
  const std::string& type = node.node().type;
  const std::string rule = type == "ReduceMean"  ? "mean"
                           : type == "ReduceSum" ? "sum"
                           : type == "ReduceMax" ? "max"
                                                 : "min";
  Value& x = node.input(0);
  Integers given = node.integers_of("axes", 1).value_or(Integers());
  if (given.empty() && node.attribute("noop_with_empty_axes", 0) != 0) return {x};
  std::set<std::size_t> axes = node.axes(given, x.shape.size());
  for (std::size_t axis = 0; given.empty() && axis < x.shape.size(); ++axis) axes.insert(axis);
  if (axes.empty()) return {x};
  return {reduced(node, graph, rule, x, axes, node.attribute("keepdims", 1) != 0)};
}

Outputs softmax(const NodeReading& node, GraphBuilding& graph) {
  Value& x = node.input(0);
  const bool is_old = node.opset() < 13;
  const std::size_t axis = node.axis(node.attribute("axis", is_old ? 1 : -1), x.shape.size());
  if (is_old && axis + 1 != x.shape.size()) {
    node.fail("is along several dimensions in operator sets before 13, which is not captured");
  }
  Value shares = graph.make_one(node, "softmax", {&x}, x.shape, {static_cast<std::int64_t>(axis)});
  if (node.node().type == "Softmax") return {shares};
  return {graph.make_one(node, "log", {&shares}, x.shape)};
}

/// The number of few digits that a float stands for: 1e-5, not 9.99999975e-6.
double in_few_digits(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(number)).ptr;
  double shortest = number;
  std::from_chars(text, end, shortest);
  return shortest;
}

/// A norm of the dimensions from `first` on, in its steps: what layer_norm and rms_norm compute,
/// with any epsilon.
Value unit(const NodeReading& node, GraphBuilding& graph, Value& x, std::size_t first,
           double epsilon, bool centres) {
  std::set<std::size_t> axes;
  for (std::size_t axis = first; axis < x.shape.size(); ++axis) axes.insert(axis);
  Value centred = x;
  if (centres) {
    Value mean = reduced(node, graph, "mean", x, axes, true);
    centred = graph.make_one(node, "subtract", {&x, &mean}, x.shape);
  }
  Value squares = graph.make_one(node, "square", {&centred}, x.shape);
  Value means = reduced(node, graph, "mean", squares, axes, true);
  Value raised = graph.make_one(node, "scale", {&means}, means.shape, {1.0, epsilon});
  Value inverse = graph.make_one(node, "rsqrt", {&raised}, means.shape);
  return graph.make_one(node, "multiply", {&centred, &inverse}, x.shape);
}

constexpr double kUsualEpsilon = 1e-5;  // that of the rules' kernels

Outputs norm(const NodeReading& node, GraphBuilding& graph, bool centres) {
  Value &x = node.input(0), &scale = node.input(1);
  const std::size_t first = node.axis(node.attribute("axis", -1), x.shape.size());
  const double epsilon = in_few_digits(node.number_attribute("epsilon", kUsualEpsilon));
  const Shape kept(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(first));
  const Shape own(x.shape.begin() + static_cast<std::ptrdiff_t>(first), x.shape.end());
  const std::vector<Attribute> attributes = {epsilon, static_cast<std::int64_t>(first)};
  const bool has_bias = centres && node.has(2);
  const bool fits = scale.shape == own && (!has_bias || node.input(2).shape == own);
  if (fits && epsilon == kUsualEpsilon && centres && has_bias) {
    return {graph
                .make(node, "layer_norm", {&x, &scale, &node.input(2)}, {x.shape, kept, kept},
                      attributes)
                .front()};
  }
  if (fits && epsilon == kUsualEpsilon && !centres) {
    return {graph.make(node, "rms_norm", {&x, &scale}, {x.shape, kept}, attributes).front()};
  }
  Value made = unit(node, graph, x, first, epsilon, centres);
  made = graph.make_one(node, "multiply", {&made, &scale}, broadcast(node, x.shape, scale.shape));
  if (!has_bias) return {made};
  return {graph.make_one(node, "add", {&made, &node.input(2)}, made.shape)};
}

Outputs layer_norm(const NodeReading& node, GraphBuilding& graph) {
  return norm(node, graph, true);
}
Outputs rms_norm(const NodeReading& node, GraphBuilding& graph) { return norm(node, graph, false); }

/// Of a label for each row of logits.
Outputs cross_entropy(const NodeReading& node, GraphBuilding& graph) {
  Value &logits = node.input(0), &labels = node.input(1);
  if (logits.shape.size() != 2 || labels.shape.size() != 1 || node.has(2)) {
    node.fail("is captured with rows of logits, a label for each and no weights");
  }
  Value column = graph.make_one(node, "reshape", {&labels}, {labels.shape[0], 1},
                                {Integers{labels.shape[0], 1}});
  Value losses = graph.make(node, "cross_entropy_with_softmax", {&logits, &column},
                            {logits.shape, column.shape})[1];
  const std::string how = node.text_attribute("reduction", "mean");
  if (how == "none") {
    return {graph.make_one(node, "reshape", {&losses}, labels.shape, {labels.shape})};
  }
  return {reduced(node, graph, how == "sum" ? "sum" : "mean", losses, {0, 1}, false)};
}

}  // namespace

std::vector<Translation> summing_translations() {
  return {
      {"Gemm", product_and_sum},
      {"LayerNormalization", layer_norm},
      {"LogSoftmax", softmax},
      {"MatMul", product},
      {"RMSNormalization", rms_norm},
      {"ReduceMax", reduction},
      {"ReduceMean", reduction},
      {"ReduceMin", reduction},
      {"ReduceSum", reduction},
      {"Softmax", softmax},
      {"SoftmaxCrossEntropyLoss", cross_entropy},
  };
}

}  // namespace pipewright::spmd::capture
