// Every operator that `spmd run` computes: its outputs are those of its definition, its gradients
// those of differences, and in every layout of its inputs ranks compute what one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "core/base/error.hpp"
#include "exec/spmd/graph_training.hpp"
#include "exec/spmd/local_operators.hpp"
#include "tests/property/spmd/trained_operators.hpp"

namespace pipewright::spmd::test {
namespace trained_operators_test {

using exec::graphs::GraphTraining;

std::string numbered(const char* what, std::size_t at) { return what + std::to_string(at); }

/// The operator between its inputs, which are trained, and a sum of its outputs times weights,
/// which are trained too: a weight's gradient is an element of an output.
class GraphOfOne {
 public:
  explicit GraphOfOne(const TrainedCase& given) : given_(given) {
    graph_.meshes = {{"m", ProcessMesh::of_shape({1})}};
    GraphOperator one{.name = "one", .rule = given.one.name, .inputs = {}, .outputs = {}};
    one.attributes = given.one.attributes;
    for (std::size_t at = 0; at < given.one.inputs.size(); ++at) inputs_.push_back(input(at));
    one.inputs = arguments(inputs_, given.one.inputs_are_a_list);
    std::vector<std::optional<std::size_t>> outputs;
    for (std::size_t at = 0; at < given.one.outputs.size(); ++at) {
      outputs.push_back(tensor(numbered("out", at), given.one.outputs[at]));
    }
    const std::set<std::string> apart = {"split", "split_with_num", "unbind"};
    one.outputs = arguments(outputs, apart.count(one.rule) > 0);
    graph_.operators.push_back(one);
    for (std::size_t at = 0; at < outputs.size(); ++at) {
      if (has_gradient(at)) weigh(*outputs[at], at);
    }
  }

  const OperatorGraph& graph() const { return graph_; }
  bool has_gradient(std::size_t output) const {
    const auto& some = given_.outputs;
    return some.empty() || std::find(some.begin(), some.end(), output) != some.end();
  }

 private:
  std::size_t tensor(const std::string& name, const Shape& shape,
                     TensorRole role = TensorRole::Activation,
                     const std::string& type = "float32") {
    graph_.tensors.push_back(
        {.name = name, .shape = shape, .type = type, .role = role, .annotation = {}});
    return graph_.tensors.size() - 1;
  }

  static std::vector<GraphArgument> arguments(
      const std::vector<std::optional<std::size_t>>& tensors, bool is_list) {
    if (is_list) return {{.tensors = tensors, .is_list = true}};
    std::vector<GraphArgument> all;
    for (const auto& one : tensors) all.push_back({.tensors = {one}});
    return all;
  }

  std::size_t made(const std::string& rule, const std::vector<std::size_t>& from,
                   const Shape& shape, std::vector<Attribute> attributes = {}) {
    const std::string name = rule + std::to_string(graph_.operators.size());
    const std::size_t to = tensor(name, shape);
    GraphOperator one{.name = name, .rule = rule, .inputs = {}, .outputs = {{.tensors = {to}}}};
    for (const std::size_t at : from) one.inputs.push_back({.tensors = {at}});
    one.attributes = std::move(attributes);
    graph_.operators.push_back(std::move(one));
    return to;
  }

  std::optional<std::size_t> input(std::size_t at) {
    const std::string type = at < given_.types.size() ? given_.types[at] : "";
    if (type == "left out") return std::nullopt;
    const Shape& shape = given_.one.inputs[at];
    if (!type.empty()) return tensor(numbered("in", at), shape, TensorRole::Constant, type);
    const std::size_t own = tensor(numbered("in", at), shape, TensorRole::Parameter);
    const std::string before = at < given_.before.size() ? given_.before[at] : "";
    if (before == "scale") return made("scale", {own}, shape, {0.5, 1.5});
    if (before == "floor") {
      return made("floor", {made("scale", {own}, shape, {4.0, 0.0})}, shape);
    }
    return before.empty() ? own : made(before, {own}, shape);
  }

  void weigh(std::size_t output, std::size_t at) {
    const Shape shape = graph_.tensors[output].shape;
    const std::size_t weight = tensor(numbered("weight", at), shape, TensorRole::Parameter);
    const std::size_t sum = made("sum", {made("multiply", {output, weight}, shape)}, {});
    total_ = total_ ? made("add", {*total_, sum}, {}) : sum;
  }

  const TrainedCase& given_;
  OperatorGraph graph_;
  std::vector<std::optional<std::size_t>> inputs_;
  std::optional<std::size_t> total_;
};

/// One step without an update: parameters are what was drawn.
GraphTraining trained(OperatorGraph completed) {
  completed.optimizer.learning_rate = 0;
  return exec::graphs::train_graph(
      completed, training_steps(completed, loss_of(completed, std::nullopt)), {.steps = 1});
}

double before_of(const TrainedCase& given, std::size_t input, double value) {
  const std::string before = input < given.before.size() ? given.before[input] : "";
  if (before == "scale") return value / 2 + 1.5;
  if (before == "floor") return std::floor(4 * value);
  return before == "relu" ? std::max(0.0, value) : value;
}

std::vector<Array> defined(const TrainedCase& given, const std::vector<Array>& inputs) {
  Computation whole{.inputs = inputs, .offsets = {}, .outputs = given.one.outputs};
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    whole.offsets.emplace_back(inputs[at].shape.size());
    for (double& value : whole.inputs[at].values) value = before_of(given, at, value);
  }
  return given.one.compute(whole);
}

std::vector<Array> drawn_inputs(const TrainedCase& given, const GraphTraining& training) {
  std::vector<Array> inputs;
  for (std::size_t at = 0; at < given.one.inputs.size(); ++at) {
    inputs.push_back(zeros(given.one.inputs[at]));
    const auto found = training.parameters.find(numbered("in", at));
    if (found == training.parameters.end()) continue;
    std::copy(found->second.begin(), found->second.end(), inputs.back().values.begin());
  }
  return inputs;
}

/// The loss of GraphOfOne by the definition.
double defined_loss(const TrainedCase& given, const GraphTraining& training,
                    const std::vector<Array>& inputs) {
  const std::vector<Array> outputs = defined(given, inputs);
  double loss = 0;
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    const auto weights = training.parameters.find(numbered("weight", at));
    if (weights == training.parameters.end()) continue;
    for (std::size_t i = 0; i < weights->second.size(); ++i) {
      loss += static_cast<double>(weights->second[i]) * outputs[at].values[i];
    }
  }
  return loss;
}

void expect_as_defined(const TrainedCase& given, const GraphOfOne& graph,
                       const GraphTraining& training) {
  std::vector<Array> inputs = drawn_inputs(given, training);
  const std::vector<Array> outputs = defined(given, inputs);
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    if (!graph.has_gradient(at)) continue;
    const std::vector<float>& found = training.gradients.at(numbered("weight", at));
    ASSERT_EQ(found.size(), outputs[at].values.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], outputs[at].values[i], 2e-6 * std::max(1.0, std::abs(found[i] + 0.0)));
    }
  }
  constexpr double kStep = 1e-5;
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    const auto gradient = training.gradients.find(numbered("in", at));
    if (gradient == training.gradients.end()) continue;
    for (std::size_t i = 0; i < gradient->second.size(); ++i) {
      double& value = inputs[at].values[i];
      const double drawn = value;
      value = drawn + kStep;
      const double above = defined_loss(given, training, inputs);
      value = drawn - kStep;
      const double below = defined_loss(given, training, inputs);
      value = drawn;
      ASSERT_NEAR(gradient->second[i], (above - below) / (2 * kStep), 1e-4)
          << "input " << at << ", element " << i;
    }
  }
}

TEST(TrainedOperators, ComputeAndDifferentiateWhatTheyAreDefinedToBe) {
  for (const TrainedCase& given : trained_cases()) {
    if (!given.one.compute) continue;
    SCOPED_TRACE(given.one.name);
    const GraphOfOne graph(given);
    expect_as_defined(given, graph, trained(exec::graphs::on_one_rank(graph.graph())));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(TrainedOperators, AreAllTried) {
  std::set<std::string_view> tried;
  const std::vector<TrainedCase> cases = trained_cases();
  for (const TrainedCase& given : cases) tried.insert(given.one.name);
  for (const std::string_view rule : exec::graphs::local_operator_names()) {
    EXPECT_EQ(tried.count(rule), 1U) << rule;
  }
}

/// All layouts without sums.
std::vector<Layout> layouts(const ProcessMesh& mesh, std::size_t tensor_dims) {
  std::vector<Layout> all = {Layout::replicated(tensor_dims)};
  for (int dim = 0; dim < mesh.dims(); ++dim) {
    const std::vector<Layout> before = all;
    for (const Layout& layout : before) {
      for (std::size_t axis = 0; axis < tensor_dims; ++axis) {
        all.push_back(layout);
        all.back().dims[axis].push_back(dim);
      }
    }
  }
  return all;
}

/// Layouts of the operator's inputs together, by tensor of the graph; at most `most`, evenly from
/// all.
std::vector<std::vector<Layout>> combinations(const TrainedCase& given, const ProcessMesh& mesh,
                                              std::size_t most) {
  std::vector<std::vector<Layout>> all = {{}};
  for (std::size_t at = 0; at < given.one.inputs.size(); ++at) {
    const auto& unheard = given.one.unheard;
    const bool is_heard = std::find(unheard.begin(), unheard.end(), at) == unheard.end();
    const std::size_t dims = given.one.inputs[at].size();
    const auto own = is_heard ? layouts(mesh, dims) : std::vector{Layout::replicated(dims)};
    std::vector<std::vector<Layout>> more;
    for (const auto& before : all) {
      for (const Layout& layout : own) {
        more.push_back(before);
        more.back().push_back(layout);
      }
    }
    all = std::move(more);
  }
  if (all.size() <= most) return all;
  std::vector<std::vector<Layout>> some;
  for (std::size_t at = 0; at < most; ++at) some.push_back(all[at * all.size() / most]);
  return some;
}

void expect_alike(const std::map<std::string, std::vector<float>>& divided,
                  const std::map<std::string, std::vector<float>>& serial) {
  ASSERT_EQ(divided.size(), serial.size());
  for (const auto& [name, values] : serial) {
    ASSERT_LE(exec::graphs::difference(divided.at(name), values).relative, 1e-6) << name;
  }
}

/// Of the layouts of an operator's inputs on one mesh; all with PIPEWRIGHT_EVERY_CASE.
std::size_t most_layouts() {
  return std::getenv("PIPEWRIGHT_EVERY_CASE") == nullptr ? 24
                                                         : std::numeric_limits<std::size_t>::max();
}

/// How many layouts of its inputs the operator takes.
int try_layouts(const TrainedCase& given, const ProcessMesh& mesh) {
  OperatorGraph graph = GraphOfOne(given).graph();
  const GraphTraining serial = trained(exec::graphs::on_one_rank(graph));
  graph.meshes = {{"m", mesh}};
  int trained_so = 0;
  for (const std::vector<Layout>& some : combinations(given, mesh, most_layouts())) {
    std::string trace = given.one.name + " on " + text_of(mesh) + ":";
    for (std::size_t at = 0; at < some.size(); ++at) {
      trace += " " + text_of(some[at], mesh);
      for (GraphTensor& tensor : graph.tensors) {
        if (tensor.name == numbered("in", at)) tensor.annotation = {.mesh = 0, .layout = some[at]};
      }
    }
    SCOPED_TRACE(trace);
    OperatorGraph complete;
    try {
      complete = completed(graph).graph;
    } catch (const InputError&) {  // layouts that contradict each other
      continue;
    }
    const GraphTraining divided = trained(complete);
    expect_alike(divided.gradients, serial.gradients);
    if (::testing::Test::HasFatalFailure()) return trained_so;
    ++trained_so;
  }
  return trained_so;
}

TEST(TrainedOperators, InEveryLayoutComputeWhatOneRankDoes) {
  int trained_so = 0;
  for (const TrainedCase& given : trained_cases()) {
    for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{4},
                                          std::vector<int>{2, 2}, std::vector<int>{2, 3}}) {
      const int some = try_layouts(given, ProcessMesh::of_shape(shape));
      EXPECT_GT(some, 1) << given.one.name;
      if (::testing::Test::HasFatalFailure()) return;
      trained_so += some;
    }
  }
  EXPECT_GT(trained_so, 3000);
}

}  // namespace trained_operators_test
}  // namespace pipewright::spmd::test
