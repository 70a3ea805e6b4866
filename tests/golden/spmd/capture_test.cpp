// Models that PyTorch exported (captured/make.py), captured: trained on one rank and on several,
// from the file's weights, their losses are those that PyTorch has.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/json.hpp"
#include "core/base/text_file.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"
#include "exec/spmd/graph_values.hpp"

namespace pipewright::spmd::test {
namespace capture_test {

const std::string kFolder = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/golden/spmd/captured/";

/// With the bytes that its model looks at.
struct CapturedModel {
  std::string bytes;
  onnx::Model model;
  capture::Captured captured;
};

/// `constants` are buffers that tracing does not tell from weights.
std::unique_ptr<CapturedModel> captured_model(const std::string& name) {
  auto result = std::make_unique<CapturedModel>();
  const std::string file = kFolder + name + ".onnx";
  result->bytes = read_data(file);
  result->model = onnx::parse_model(result->bytes, file);
  capture::CaptureOptions options{.dimensions = {{"batch", 4}}};
  if (name == "llama") options.constants = {"cos", "sin"};
  result->captured = capture::captured(result->model, file, options);
  return result;
}

exec::graphs::GraphValues values_of(const CapturedModel& model, const std::string& name) {
  exec::graphs::GraphValues values = exec::graphs::read_graph_values(
      kFolder + (name == "mlp" ? "mlp" : "words") + "-data.safetensors", model.captured.graph);
  for (const capture::GivenValues& one : model.captured.given) {
    const auto numbers =
        one.initializer == nullptr ? one.numbers : onnx::values_of(*one.initializer, {}, name);
    values[model.captured.graph.tensors[one.tensor].name] = {numbers.begin(), numbers.end()};
  }
  return values;
}

/// Data divided along the first dimension of a mesh, and each matrix that is multiplied with
/// columns along the second, as far as they go together.
OperatorGraph divided(OperatorGraph graph) {
  graph.meshes = {{"m", ProcessMesh::of_shape({2, 2})}};
  const auto producers = producers_of(graph);
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    GraphTensor& tensor = graph.tensors[at];
    const bool is_data = !producers[at] && tensor.role == TensorRole::Activation;
    const bool is_wide = tensor.role == TensorRole::Parameter && tensor.shape.size() == 2 &&
                         tensor.shape[1] > tensor.shape[0];
    if (!is_data && !is_wide) continue;
    Layout layout = Layout::replicated(tensor.shape.size());
    layout.dims[is_data ? 0 : 1].push_back(is_data ? 0 : 1);
    tensor.annotation = {.mesh = 0, .layout = layout};
  }
  return completed(graph).graph;
}

class CapturedModels : public ::testing::TestWithParam<const char*> {};

TEST_P(CapturedModels, TrainAsPyTorchTrainsThem) {
  const std::string name = GetParam();
  const auto model = captured_model(name);
  const OperatorGraph& graph = model->captured.graph;
  const exec::graphs::GraphTrainingOptions options{.values = values_of(*model, name)};
  const Json all = parse_json(read_text(kFolder + "losses.json"), "losses.json");
  const auto expected = all.at(name).get<std::vector<double>>();
  for (const OperatorGraph& complete : {exec::graphs::on_one_rank(graph), divided(graph)}) {
    const auto training = exec::graphs::train_graph(
        complete, training_steps(complete, loss_of(complete, std::nullopt)), options);
    ASSERT_EQ(training.losses.size(), expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(training.losses[step], expected[step], 1e-5 * expected[step]) << "step " << step;
    }
  }
}

/// As many parameters as the module has, and its buffers among the constants.
TEST_P(CapturedModels, KeepParametersAndConstantsApart) {
  const std::string name = GetParam();
  const auto model = captured_model(name);
  int parameters = 0;
  for (const GraphTensor& tensor : model->captured.graph.tensors) {
    if (tensor.name == "cos" || tensor.name == "sin") {
      EXPECT_EQ(tensor.role, TensorRole::Constant) << tensor.name;
    }
    if (tensor.role == TensorRole::Parameter) ++parameters;
  }
  EXPECT_EQ(parameters, name == "mlp" ? 4 : name.rfind("gpt", 0) == 0 ? 17 : 12);
}

/// The graph is read again as it was.
TEST_P(CapturedModels, AreFilesThatAreReadAgain) {
  const auto model = captured_model(GetParam());
  const Json written = to_json(model->captured.graph);
  EXPECT_EQ(to_json(read_graph(JsonCursor(written, "graph.json"))), written);
}

INSTANTIATE_TEST_SUITE_P(OfPyTorch, CapturedModels,
                         ::testing::Values("mlp", "gpt", "gpt-14", "llama", "llama-e"));

}  // namespace capture_test
}  // namespace pipewright::spmd::test
