// Nodes of ONNX models as operators: what each kind becomes, what is computed right away, and what
// is refused with its place.
#include "core/spmd/capture/capture.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/unit/spmd/onnx_bytes.hpp"

namespace pipewright::spmd::capture {
namespace {

using pipewright::test::field;
using pipewright::test::float_value;
using pipewright::test::integer_attribute;
using pipewright::test::integer_tensor;
using pipewright::test::integers_attribute;
using pipewright::test::onnx_model;
using pipewright::test::OnnxGraph;
using pipewright::test::zeros_tensor;

OperatorGraph captured_graph(const std::string& bytes, const CaptureOptions& options = {}) {
  const onnx::Model model = onnx::parse_model(bytes, "m.onnx");
  return captured(model, "m.onnx", options).graph;
}

std::string refusal(const std::string& bytes, const CaptureOptions& options = {}) {
  try {
    captured_graph(bytes, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

/// "reshape [2, 12]", by operator.
std::vector<std::string> rules(const OperatorGraph& graph) {
  std::vector<std::string> lines;
  for (const GraphOperator& one : graph.operators) {
    std::string line = one.rule;
    for (const auto& tensor : tensors_of(one.outputs)) {
      line += " [";
      for (const std::int64_t size : graph.tensors[*tensor].shape) {
        line += (line.back() == '[' ? "" : ", ") + std::to_string(size);
      }
      line += "]";
    }
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(Capture, FoldsShapesThatAreComputed) {
  // x.reshape(x.shape[0], -1), and rows of it by a slice that its size gives
  const std::string bytes = onnx_model(
      {.nodes = {{"Shape", {"x"}, {"shape"}},
                 {"Gather", {"shape", "zero"}, {"rows"}},
                 {"Unsqueeze", {"rows", "axes"}, {"row"}},
                 {"Concat", {"row", "rest"}, {"asked"}, integer_attribute("axis", 0)},
                 {"Reshape", {"x", "asked"}, {"y"}},
                 {"Div", {"row", "two"}, {"half"}},
                 {"Slice", {"y", "axes", "half", "axes"}, {"z"}}},
       .inputs = {float_value("x", {"batch", "3", "4"})},
       .initializers = {integer_tensor("zero", {}, {0}), integer_tensor("axes", {1}, {0}),
                        integer_tensor("rest", {1}, {-1}), integer_tensor("two", {1}, {2})}});
  const OperatorGraph graph = captured_graph(bytes, {.dimensions = {{"batch", 6}}});
  EXPECT_EQ(rules(graph), (Lines{"reshape [6, 12]", "slice [3, 12]"}));
  EXPECT_EQ(graph.operators[1].attributes[2], Attribute(std::vector<std::int64_t>{3}));
  EXPECT_EQ(graph.tensors.back().name, "z");
}

TEST(Capture, TakesWeightsAsParametersAndNumbersAsAttributes) {
  const std::string bytes = onnx_model(
      {.nodes = {{"Gemm", {"x", "w", "b"}, {"h"}, integer_attribute("transB", 1)},
                 {"Mul", {"h", "n"}, {"half"}},
                 {"ReduceMean", {"half", "axes"}, {"loss"}, integer_attribute("keepdims", 0)}},
       .inputs = {float_value("x", {"2", "3"})},
       .initializers = {zeros_tensor("w", {4, 3}), zeros_tensor("b", {4}), zeros_tensor("n", {1}),
                        integer_tensor("axes", {2}, {0, -1})}});
  const OperatorGraph graph = captured_graph(bytes);
  EXPECT_EQ(rules(graph), (Lines{"matmul [2, 4]", "add [2, 4]", "scale [2, 4]", "mean []"}));
  for (const GraphTensor& tensor : graph.tensors) {
    const bool is_weight = tensor.name == "w" || tensor.name == "b";
    EXPECT_EQ(tensor.role, is_weight ? TensorRole::Parameter : TensorRole::Activation)
        << tensor.name;
  }
  const OperatorGraph frozen = captured_graph(bytes, {.constants = {"b"}});
  for (const GraphTensor& tensor : frozen.tensors) {
    if (tensor.name == "b") {
      EXPECT_EQ(tensor.role, TensorRole::Constant);
    }
  }
}

TEST(Capture, ExpandsSplitsAndJoins) {
  const std::string bytes =
      onnx_model({.nodes = {{"Split", {"x", "sizes"}, {"a", "b"}, integer_attribute("axis", -1)},
                            {"Expand", {"a", "shape"}, {"c"}},
                            {"Transpose", {"c"}, {"d"}, integers_attribute("perm", {2, 0, 1})},
                            {"Concat", {"b", "b"}, {"e"}, integer_attribute("axis", 1)},
                            {"Squeeze", {"e"}, {"f"}}},
                  .inputs = {float_value("x", {"1", "3"})},
                  .initializers = {integer_tensor("sizes", {2}, {1, 2}),
                                   integer_tensor("shape", {3}, {5, 4, 1})}});
  EXPECT_EQ(rules(captured_graph(bytes)),
            (Lines{"split [1, 1] [1, 2]", "tile [5, 4, 1]", "transpose [1, 5, 4]", "concat [1, 4]",
                   "reshape [4]"}));
}

std::string with_node(const pipewright::test::OnnxNode& node) {
  return onnx_model({.nodes = {{"Relu", {"x"}, {"y"}}, node},
                     .inputs = {float_value("x", {"2", "3"})},
                     .initializers = {integer_tensor("odd", {1}, {5}), zeros_tensor("v", {3})}});
}

TEST(Capture, NamesTheNodeThatItRefuses) {
  const auto expect = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  const std::string unknown = refusal(with_node({"NonZero", {"y"}, {"z"}, {}, {}, "/find"}));
  expect(unknown, "m.onnx: node 1, \"/find\" (NonZero)");
  expect(unknown, "is not captured; these are: Abs, Add, ");
  expect(refusal(with_node({"FastGelu", {"y"}, {"z"}, {}, "com.microsoft"})),
         "node 1 (FastGelu): is of \"com.microsoft\"");
  expect(refusal(with_node({"Relu", {"w"}, {"z"}})), "takes \"w\", which nothing before it makes");
  expect(refusal(with_node({"Reshape", {"y", "odd"}, {"z"}})),
         "node 1 (Reshape): asks for another number of elements than it has");
  expect(refusal(with_node({"Reshape", {"y", "y"}, {"z"}})),
         "its input \"y\" is computed while the model runs, and has to be known");
  expect(refusal(with_node({"MatMul", {"y", "v"}, {"z"}})), "has a vector");
  expect(refusal(with_node({"Add", {"y", "odd2"}, {"z"}})), "takes \"odd2\"");
  expect(refusal(with_node({"Softmax", {"y"}, {"z"}, integer_attribute("axis", 4)})),
         "names dimension 4 of a tensor that has 2");
}

TEST(Capture, AsksForSizesAndNames) {
  const OnnxGraph graph{.nodes = {{"Relu", {"x"}, {"y"}}},
                        .inputs = {float_value("x", {"batch", "3"})},
                        .initializers = {zeros_tensor("weight", {3})}};
  EXPECT_NE(refusal(onnx_model(graph))
                .find("input \"x\": dimension \"batch\" has no size: say "
                      "--dimension batch=8"),
            std::string::npos);
  EXPECT_NE(refusal(onnx_model(graph), {.dimensions = {{"batch", 2}}, .constants = {"wieght"}})
                .find("has no initializer \"wieght\" (did you mean \"weight\"?)"),
            std::string::npos);
}

TEST(Capture, RefusesWhatIsNoModel) {
  const std::string whole =
      onnx_model({.nodes = {{"Relu", {"x"}, {"y"}}}, .inputs = {float_value("x", {"2", "3"})}});
  EXPECT_EQ(rules(captured_graph(whole)), (Lines{"relu [2, 3]"}));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string text = refusal(whole.substr(0, length));
    EXPECT_NE(text.find("m.onnx"), std::string::npos) << length << ": " << text;
  }
  EXPECT_NE(refusal("{\"schema\": 1}").find("is it an ONNX"), std::string::npos);
}

TEST(Capture, ReadsValuesOfOtherFilesBesideTheModelAlone) {
  const std::string data = field(1, "location") + field(2, "../secret");
  const std::string tensor =
      field(2, 1) + field(8, "w") + field(1, 3) + field(13, data) + field(14, 1);
  const std::string bytes = onnx_model({.nodes = {{"Mul", {"x", "w"}, {"y"}}},
                                        .inputs = {float_value("x", {"2", "3"})},
                                        .initializers = {tensor}});
  EXPECT_NE(refusal(bytes).find("tensor \"w\" has its values in \"../secret\", expected a file "
                                "beside the model"),
            std::string::npos);
}

}  // namespace
}  // namespace pipewright::spmd::capture
