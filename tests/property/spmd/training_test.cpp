// A graph trained on ranks is the graph trained on one, however its tensors are annotated; and one
// rank's gradients are those of differences.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"
#include "exec/spmd/saved_state.hpp"
#include "tests/property/spmd/random_graph.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::spmd::test {
namespace training_test {

using exec::graphs::ArrayDifference;
using exec::graphs::GraphTraining;
using exec::graphs::GraphTrainingOptions;
using pipewright::test::Draw;

OperatorGraph example(const std::string& name) {
  const std::string file = std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/examples/" + name + ".json";
  const Json json = parse_json(read_text(file), file);
  return read_graph(JsonCursor(json, file));
}

GraphTraining trained(const OperatorGraph& completed, const GraphTrainingOptions& options) {
  return exec::graphs::train_graph(
      completed, training_steps(completed, loss_of(completed, std::nullopt)), options);
}

std::vector<NamedMesh> random_meshes(Draw& draw) {
  switch (draw.below(6)) {
    case 0:
      return {{"m", mesh_at({2}, 0)}};
    case 1:
      return {{"m", mesh_at({3}, 0)}};
    case 2:
      return {{"m", mesh_at({2, 2}, 0)}};
    case 3:
      return {{"m", mesh_at({2, 3}, 0)}};
    case 4:
      return {{"m", mesh_at({2, 2}, 0)}, {"n", mesh_at({2, 2}, 4)}};
    default:
      return {{"m", mesh_at({4}, 0)}, {"n", mesh_at({2, 2}, 2)}};
  }
}

/// Meshes and layouts of some of the tensors that no operator makes.
OperatorGraph annotated(OperatorGraph graph, Draw& draw) {
  graph.meshes = random_meshes(draw);
  const auto producers = producers_of(graph);
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    GraphTensor& tensor = graph.tensors[at];
    tensor.annotation = {};
    if (producers[at]) continue;
    tensor.annotation.mesh =
        static_cast<std::size_t>(draw.below(static_cast<int>(graph.meshes.size())));
    if (draw.below(4) == 0) continue;
    const int dims = static_cast<int>(tensor.shape.size());
    Layout layout = Layout::replicated(tensor.shape.size());
    for (int dim = 0; dim < graph.meshes[*tensor.annotation.mesh].mesh.dims(); ++dim) {
      const int axis = draw.below(dims + 1);
      if (axis < dims) layout.dims[static_cast<std::size_t>(axis)].push_back(dim);
    }
    tensor.annotation.layout = layout;
  }
  return graph;
}

void expect_alike(const ArrayDifference& difference, const std::string& what) {
  EXPECT_LE(difference.relative, 1e-6) << what;
}

void expect_trains_alike(const OperatorGraph& graph, const GraphTraining& serial,
                         const GraphTrainingOptions& options) {
  const GraphTraining divided = trained(graph, options);
  EXPECT_EQ(divided.memory, memory_of(graph, training_steps(graph, loss_of(graph, std::nullopt))));
  ASSERT_EQ(divided.losses.size(), serial.losses.size());
  for (std::size_t step = 0; step < serial.losses.size(); ++step) {
    EXPECT_NEAR(divided.losses[step], serial.losses[step], 1e-6 * std::abs(serial.losses[step]));
  }
  ASSERT_EQ(divided.parameters.size(), serial.parameters.size());
  for (const auto& [name, values] : serial.parameters) {
    expect_alike(exec::graphs::difference(divided.parameters.at(name), values), name);
    expect_alike(exec::graphs::difference(divided.gradients.at(name), serial.gradients.at(name)),
                 "gradient of " + name);
  }
}

void try_annotations(OperatorGraph plain, const std::string& name, int seeds, int least_trained) {
  const GraphTrainingOptions options{.steps = 2};
  const GraphTraining serial = trained(exec::graphs::on_one_rank(plain), options);
  int tried = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(name + ", seed " + std::to_string(seed));
    Draw draw(static_cast<std::uint32_t>(seed));
    OperatorGraph graph = annotated(plain, draw);
    if (graph.optimizer.sharding_dim) graph.optimizer.sharding_stage = 1 + draw.below(3);
    OperatorGraph complete;
    try {
      complete = completed(graph).graph;
    } catch (const InputError&) {  // annotations that contradict each other at one operator
      continue;
    }
    expect_trains_alike(complete, serial, options);
    if (::testing::Test::HasFailure()) return;
    ++tried;
  }
  EXPECT_GE(tried, least_trained);
}

void try_annotations(const std::string& name) { try_annotations(example(name), name, 60, 30); }

TEST(GraphTraining, OfAPerceptronIsThatOfOneRank) { try_annotations("hybrid-parallel"); }

TEST(GraphTraining, OfWordsIsThatOfOneRank) { try_annotations("hybrid-words"); }

/// Meshes of one dimension and of two, parameters that are divided along it already among them.
TEST(GraphTraining, WithDividedStatesIsThatOfOneRank) {
  for (const char* name : {"hybrid-parallel", "hybrid-words"}) {
    OperatorGraph graph = example(name);
    graph.optimizer = {.kind = GraphOptimizer::Kind::Momentum, .sharding_dim = "d0"};
    try_annotations(graph, name, 60, 30);
  }
}

/// What was saved on one division is read on another one, and saved again from there, bit for bit.
void try_conversions(const std::string& name) {
  OperatorGraph plain = example(name);
  plain.optimizer = {.kind = GraphOptimizer::Kind::AdamW, .sharding_dim = "d0"};
  const pipewright::test::Folder folder;
  const auto first = folder.path() / "first", second = folder.path() / "second";
  int tried = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(name + ", seed " + std::to_string(seed));
    Draw draw(seed);
    OperatorGraph one = annotated(plain, draw), other = annotated(plain, draw);
    one.optimizer.sharding_stage = draw.below(4);
    other.optimizer.sharding_stage = draw.below(4);
    try {
      one = completed(one).graph;
      other = completed(other).graph;
    } catch (const InputError&) {
      continue;
    }
    const GraphTraining saved = trained(one, {.steps = 2, .save = first});
    const GraphTraining read = trained(other, {.steps = 0, .load = first, .save = second});
    EXPECT_EQ(read.parameters, saved.parameters);
    const exec::graphs::SavedState before(first), after(second);
    EXPECT_EQ(after.step(), 2);
    for (const GraphTensor& tensor : plain.tensors) {
      if (tensor.role != TensorRole::Parameter) continue;
      const LocalPart whole{.offset = Shape(tensor.shape.size()), .shape = tensor.shape};
      std::int64_t bytes = 0;
      for (const char* state : {"value", "mean", "square"}) {
        const std::string array = exec::graphs::saved_name(state, tensor.name);
        EXPECT_EQ(after.read(array, tensor.shape, whole, bytes).values,
                  before.read(array, tensor.shape, whole, bytes).values)
            << array;
      }
    }
    if (::testing::Test::HasFailure()) return;
    ++tried;
  }
  EXPECT_GE(tried, 6);
}

TEST(GraphTraining, GoesOnFromWhatAnotherDivisionSaved) {
  for (const char* name : {"hybrid-parallel", "hybrid-words"}) try_conversions(name);
}

/// The loss of the first step where each parameter has moved against its gradient by `rate`.
double loss_after(OperatorGraph graph, double rate) {
  graph.optimizer.learning_rate = rate;
  return trained(graph, {.steps = 2}).losses[1];
}

/// Along the gradient the loss falls by the square of its length.
TEST(GraphTraining, GradientsAreThoseOfDifferences) {
  for (const char* name : {"hybrid-parallel", "hybrid-words", "matmul-relu"}) {
    const OperatorGraph graph = exec::graphs::on_one_rank(example(name));
    double square = 0;
    for (const auto& [parameter, values] : trained(graph, {.steps = 1}).gradients) {
      for (const float value : values) square += static_cast<double>(value) * value;
    }
    constexpr double kRate = 1e-2;
    const double fallen = loss_after(graph, -kRate) - loss_after(graph, kRate);
    EXPECT_NEAR(fallen / (2 * kRate) / square, 1, 1e-2) << name;
  }
}

}  // namespace training_test
}  // namespace pipewright::spmd::test
