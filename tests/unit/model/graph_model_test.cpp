// Layers that name their inputs: how a graph becomes a chain of what can be cut, and what is
// refused.
#include <gtest/gtest.h>

#include "core/model/graph.hpp"
#include "core/model/model.hpp"
#include "exec/layers/footprint.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace graph_model_test {

using test::expect_one_line;
using test::refusal;

Model read(const std::string& text) {
  const Json document = parse_json(text, "m.json");
  return read_model(JsonCursor(document, "m.json"));
}

std::string with_layers(const std::string& list) {
  return R"({"schema": "pipewright.model/1", "loss": "mse", "layers": [)" + list + "]}";
}

std::string pointer_of_refusal(const std::string& list) {
  const InputError error = refusal([&] { read(with_layers(list)); });
  expect_one_line(error);
  return error.pointer();
}

const std::string kDiamond = R"(
  {"name": "in", "kind": "linear", "in": 4, "out": 6},
  {"name": "left", "kind": "relu"},
  {"name": "right", "kind": "linear", "out": 6, "inputs": ["in"]},
  {"name": "sum", "kind": "add", "inputs": ["left", "right", "in"]},
  {"name": "out", "kind": "linear", "out": 2})";

TEST(GraphModel, ADiamondBecomesOneLayerBetweenTheTwoThatCanBeCutOff) {
  const Model model = read(with_layers(kDiamond));
  ASSERT_EQ(model.layers.size(), 3U);
  EXPECT_EQ(model.layers[0].name, "in");
  EXPECT_TRUE(model.layers[0].inputs.empty());
  const Layer& graph = model.layers[1];
  EXPECT_EQ(graph.kind, LayerKind::Graph);
  EXPECT_EQ(graph.name, "left to sum");
  ASSERT_EQ(graph.inner.size(), 3U);
  EXPECT_EQ(graph.inner[0].inputs, std::vector<int>{kGraphInput});
  EXPECT_EQ(graph.inner[1].inputs, std::vector<int>{kGraphInput});
  EXPECT_EQ(graph.inner[2].inputs, (std::vector<int>{0, 1, kGraphInput}));
  EXPECT_EQ(graph.in, 6);
  EXPECT_EQ(graph.out, 6);
  EXPECT_EQ(model.layers[2].name, "out");
  EXPECT_EQ(read(to_text(to_json(model))).layers, model.layers);
}

TEST(GraphModel, AChainStaysAChainWhetherItNamesItsInputsOrNot) {
  const Model plain = read(with_layers(R"(
    {"name": "a", "kind": "linear", "in": 4, "out": 6}, {"name": "b", "kind": "relu"})"));
  const Model named = read(with_layers(R"(
    {"name": "a", "kind": "linear", "in": 4, "out": 6, "inputs": ["input"]},
    {"name": "b", "kind": "relu", "inputs": ["a"]})"));
  EXPECT_EQ(plain.layers, named.layers);
}

TEST(GraphModel, TheInputOfAllCanBeReadAgain) {
  const Model model = read(with_layers(R"(
    {"name": "a", "kind": "linear", "in": 4, "out": 4},
    {"name": "sum", "kind": "add", "inputs": ["a", "input"]},
    {"name": "b", "kind": "linear", "out": 3})"));
  ASSERT_EQ(model.layers.size(), 2U);
  EXPECT_EQ(model.layers[0].kind, LayerKind::Graph);
  EXPECT_EQ(model.layers[0].in, 4);
}

TEST(GraphModel, ConcatPutsChannelsTogether) {
  const Model model = read(with_layers(R"(
    {"name": "stem", "kind": "conv2d", "image": [2, 6, 6], "channels": 3, "kernel": 3,
     "padding": 1},
    {"name": "wide", "kind": "conv2d", "channels": 4, "kernel": 1, "inputs": ["stem"]},
    {"name": "pool", "kind": "max_pool", "kernel": 3, "stride": 1, "padding": 1,
     "inputs": ["stem"]},
    {"name": "both", "kind": "concat", "inputs": ["wide", "pool"]},
    {"name": "norm", "kind": "batch_norm"})"));
  ASSERT_EQ(model.layers.size(), 3U);
  EXPECT_EQ(model.layers[1].out, 7 * 36);
  EXPECT_EQ(model.layers[2].image, (ImageShape{7, 6, 6}));
  EXPECT_EQ(read(to_text(to_json(model))).layers, model.layers);
  // An add costs its additions, a concat nothing.
  const exec::LayerFootprint graph = exec::footprint(model.layers[1], model, 1);
  const exec::LayerFootprint wide = exec::footprint(model.layers[1].inner[0], model, 1);
  const exec::LayerFootprint pool = exec::footprint(model.layers[1].inner[1], model, 1);
  EXPECT_EQ(graph.forward_flops, wide.forward_flops + pool.forward_flops);
}

TEST(GraphModel, WhatDoesNotFitIsRefusedAtItsPlace) {
  const std::string two = R"({"name": "a", "kind": "linear", "in": 4, "out": 6},
                             {"name": "b", "kind": "linear", "out": 5, "inputs": ["a"]},)";
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "add", "inputs": ["a", "b"]})"),
            "/layers/2/inputs");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "add", "inputs": ["a"]})"), "/layers/2/inputs");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "add"})"), "/layers/2");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "concat", "inputs": ["a", "c"]})"),
            "/layers/2/inputs/1");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "relu", "inputs": ["a", "b"]})"),
            "/layers/2/inputs");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "relu", "inputs": ["a"]})"), "/layers/1");
  EXPECT_EQ(pointer_of_refusal(two + R"({"name": "a", "kind": "relu"},
                                        {"kind": "add", "inputs": ["a", "b"]})"),
            "/layers/3/inputs/0");
  EXPECT_EQ(pointer_of_refusal(two + R"({"kind": "sequential", "layers": [
                                        {"kind": "relu", "inputs": ["input"]}]})"),
            "/layers/2/layers/0/inputs");
  EXPECT_EQ(pointer_of_refusal(R"({"name": "ids", "kind": "embedding", "vocabulary": 9, "out": 9},
                                  {"name": "a", "kind": "linear", "in": 9, "out": 9,
                                   "inputs": ["input"]},
                                  {"kind": "add", "inputs": ["ids", "a"]})"),
            "/layers/1/inputs");
}

TEST(CustomLayer, IsDescribedByItsTypeItsSettingsAndWhatItCosts) {
  const Model model = read(with_layers(R"(
    {"name": "own", "kind": "custom", "type": "swish", "in": 6, "settings": {"slope": "1.5"},
     "weights": 6, "operations": 48},
    {"kind": "custom", "type": "cut", "out": 2, "kept": 10, "held": 16})"));
  EXPECT_EQ(model.layers[0].custom.type, "swish");
  EXPECT_EQ(model.layers[0].out, 6);
  EXPECT_EQ(model.layers[1].out, 2);
  EXPECT_EQ(model.layers[0].custom.kept, 0);
  EXPECT_EQ(model.layers[1].custom.kept, 10);
  EXPECT_EQ(model.layers[0].custom.held, 0);
  EXPECT_EQ(model.layers[1].custom.held, 16);
  EXPECT_EQ(read(to_text(to_json(model))).layers, model.layers);
  const exec::LayerFootprint one = exec::footprint(model.layers[0], model, 3);
  EXPECT_EQ(one.parameters, 6);
  EXPECT_EQ(one.forward_flops, 144);
  EXPECT_EQ(one.weight_gradient_flops, 144);
  EXPECT_EQ(exec::footprint(model.layers[1], model, 3).weight_gradient_flops, 0);
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "custom", "in": 6})"), "/layers/0");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "custom", "type": "cut", "in": 6, "kept": 3e9})"),
            "/layers/0/kept");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "custom", "type": "cut", "in": 6, "held": -1})"),
            "/layers/0/held");
}

}  // namespace graph_model_test
}  // namespace pipewright
