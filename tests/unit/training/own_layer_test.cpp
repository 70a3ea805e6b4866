// Layers that a program brings itself, and graphs of layers: their gradients, their parameters, and
// what is refused.
#include "exec/layers/own_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/serial.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/unit/loss_slope.hpp"

namespace pipewright::exec {
namespace own_layer_test {

using test::refusal;

/// y = w x², to half of the width: the two halves of a row are added. Keeps the sum of each pair's
/// squares, so that `kept` is used.
class SquareSum final : public OwnLayer {
 public:
  explicit SquareSum(const OwnLayerSite& site)
      : in_(static_cast<std::size_t>(site.in)),
        out_(static_cast<std::size_t>(site.out)),
        weight_(site.random("weight", out_, std::stof(site.setting("bound", "1")))) {}

  int kept_width() const override { return static_cast<int>(out_); }

  void forward(const OwnLayerInput& input, std::span<float> y) override {
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t at = i / out_ * in_ + i % out_;
      input.kept[i] = input.x[at] * input.x[at] + input.x[at + out_] * input.x[at + out_];
      y[i] = weight_.value[i % out_] * input.kept[i];
    }
  }
  void backward_input(const OwnLayerInput& input, std::span<const float> dy,
                      std::span<float> dx) override {
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const std::size_t column = i % in_ % out_;
      dx[i] = 2 * input.x[i] * weight_.value[column] * dy[i / in_ * out_ + column];
    }
  }
  void backward_weight(const OwnLayerInput& input, std::span<const float> dy) override {
    for (std::size_t i = 0; i < dy.size(); ++i) weight_.gradient[i % out_] += dy[i] * input.kept[i];
  }
  std::vector<Parameter*> parameters() override { return {&weight_}; }

 private:
  std::size_t in_, out_;
  Parameter weight_;
};

LayerFactory factory() {
  LayerFactory made;
  made.makers["square_sum"] = [](const OwnLayerSite& site) {
    return std::make_unique<SquareSum>(site);
  };
  made.makers["nothing"] = [](const OwnLayerSite&) { return nullptr; };
  return made;
}

Model model_of(const std::string& layers) {
  const Json document = parse_json(
      R"({"schema": "pipewright.model/1", "loss": "mse", "layers": [)" + layers + "]}", "m.json");
  return read_model(JsonCursor(document, "m.json"));
}

Model own_model() {
  return model_of(R"(
    {"kind": "linear", "in": 5, "out": 8},
    {"name": "own", "kind": "custom", "type": "square_sum", "out": 4, "weights": 4,
     "settings": {"bound": "0.5"}},
    {"kind": "linear", "out": 3})");
}

/// Reads the input twice, adds and joins; "norm" is read three times.
Model graph_model() {
  return model_of(R"(
    {"name": "norm", "kind": "layer_norm", "in": 6},
    {"name": "gelu", "kind": "gelu"},
    {"name": "side", "kind": "linear", "out": 6, "inputs": ["norm"]},
    {"name": "sum", "kind": "add", "inputs": ["gelu", "side", "norm"]},
    {"name": "all", "kind": "concat", "inputs": ["sum", "input", "side"]},
    {"name": "down", "kind": "linear", "out": 4})");
}

/// The largest element of each gradient against central differences of the loss.
void expect_gradients_of_the_loss(const Model& model, const LayerFactory* layers,
                                  std::size_t arrays) {
  const auto data = vector_source(model, {3, 2, 5});
  SerialRun serial(model, {3, 2, 5, {}, {.layers = layers}});
  serial.gradients(*data, 0);
  const auto views = serial.stage().parameters();
  for (const ParameterView& view : views) {
    expect_slope_of_loss(serial, *data, view, {1e-2F, 2e-4, 0.01});
  }
  EXPECT_EQ(views.size(), arrays);
}

TEST(OwnLayer, IsTrainedLikeAnyOther) {
  const LayerFactory made = factory();
  expect_gradients_of_the_loss(own_model(), &made, 2 + 1 + 2);
}

TEST(OwnLayer, StartsTheSameInEveryPartition) {
  const LayerFactory made = factory();
  const Model model = own_model();
  const cpu::StageOptions options{.layers = &made};
  const cpu::Stage whole(model, 0, 3, 2, 2, 9, {}, options);
  const cpu::Stage alone(model, 1, 2, 2, 2, 9, {}, options);
  const auto of_whole = whole.parameters(), of_alone = alone.parameters();
  ASSERT_EQ(of_alone.size(), 1U);
  EXPECT_EQ(of_alone[0].name, "1.own/weight");
  EXPECT_EQ(of_whole[2].name, "1.own/weight");
  EXPECT_TRUE(
      std::equal(of_alone[0].value.begin(), of_alone[0].value.end(), of_whole[2].value.begin()));
  EXPECT_LE(std::abs(of_alone[0].value[0]), 0.5F);  // the setting
  EXPECT_EQ(whole.parameter_count(), 5 * 8 + 8 + 4 + 4 * 3 + 3);
}

TEST(OwnLayer, AnUnknownTypeIsRefusedByName) {
  const Model model = own_model();
  const auto message = [&](const LayerFactory* layers, const Model& what) {
    return refusal([&] { cpu::Stage(what, 0, 3, 1, 1, 1, {}, {.layers = layers}); }).message();
  };
  EXPECT_NE(message(nullptr, model).find("square_sum"), std::string::npos);
  LayerFactory other;
  other.makers["square_sums"] = factory().makers["square_sum"];
  EXPECT_NE(message(&other, model).find("did you mean \"square_sums\"?"), std::string::npos);
  Model empty = model;
  empty.layers[1].custom.type = "nothing";
  const LayerFactory made = factory();
  EXPECT_NE(message(&made, empty).find("returned no layer"), std::string::npos);
}

TEST(GraphLayer, GradientsOfWhatIsReadSeveralTimesAreAdded) {
  expect_gradients_of_the_loss(graph_model(), nullptr, 2 + 2 + 2);
}

TEST(GraphLayer, AGraphInFrontOfWhichAnotherLayerStandsPassesItsGradientOn) {
  const Model model = model_of(R"(
    {"name": "up", "kind": "linear", "in": 5, "out": 6},
    {"name": "left", "kind": "relu"},
    {"name": "sum", "kind": "add", "inputs": ["left", "up", "up"]},
    {"name": "down", "kind": "linear", "out": 4})");
  ASSERT_EQ(model.layers.size(), 3U);
  expect_gradients_of_the_loss(model, nullptr, 4);
}

TEST(GraphLayer, WhatAProgramPutsTogetherWrongIsRefused) {
  Model model = graph_model();
  ASSERT_EQ(model.layers.front().kind, LayerKind::Graph);
  const auto refused = [](const Model& what) {
    return refusal([&] { cpu::Stage(what, 0, static_cast<int>(what.layers.size()), 1, 1, 1); })
        .message();
  };
  Model late = model;
  late.layers.front().inner[1].inputs = {4};
  EXPECT_NE(refused(late).find("not before it"), std::string::npos);
  Model uneven = model;
  uneven.layers.front().inner[2].out = 5;
  EXPECT_NE(refused(uneven).find("different widths"), std::string::npos);
  Model join = model;
  join.layers = {model.layers.front().inner[3]};
  EXPECT_NE(refused(join).find("belongs into a graph"), std::string::npos);
}

}  // namespace own_layer_test
}  // namespace pipewright::exec
