// The description of image models: shapes, footprints, the presets, and the JSON of their layers.
#include <gtest/gtest.h>

#include "core/model/image.hpp"
#include "core/model/model.hpp"
#include "core/model/resnet.hpp"
#include "core/model/weights.hpp"
#include "exec/layers/footprint.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace image_model_test {

using test::expect_one_line;
using test::refusal;

Model read(const std::string& text) {
  const Json document = parse_json(text, "m.json");
  return read_model(JsonCursor(document, "m.json"));
}

std::string with_layers(const std::string& list) {
  return R"({"schema": "pipewright.model/1", "loss": "softmax_cross_entropy", "layers": [)" + list +
         "]}";
}

std::string pointer_of_refusal(const std::string& list) {
  const InputError error = refusal([&] { read(with_layers(list)); });
  expect_one_line(error);
  return error.pointer();
}

std::int64_t parameters(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers) sum += static_cast<std::int64_t>(parameter_count(layer));
  return sum;
}

double forward_of(const Layer& layer, const Model& model, bool (*counts)(LayerKind)) {
  if (layer.inner.empty()) {
    return counts(layer.kind) ? exec::footprint(layer, model, 1).forward_flops : 0;
  }
  double sum = 0;
  for (const Layer& one : layer.inner) sum += forward_of(one, model, counts);
  for (const Layer& one : layer.shortcut) sum += forward_of(one, model, counts);
  return sum;
}

TEST(ResNet, TheFiftyLayersHaveTheirParameters) {
  // 25,557,032 is the count of every implementation; the last layer is 2048 · 1000 + 1000 of it.
  EXPECT_EQ(parameters(model_preset("resnet50")), 25'557'032);
  // With ten classes and a 3x3 stem: 2,028,990 less at the end, 3 · 64 · (49 - 9) at the beginning.
  EXPECT_EQ(parameters(model_preset("resnet50-small")),
            25'557'032 - 990 * 2049 - 3 * 64 * (49 - 9));
}

TEST(ResNet, TheFiftyLayersHaveTheirOperations) {
  // 4,089,184,256 multiply-adds in convolutions and the last layer, which has a bias too.
  const Model model = model_preset("resnet50");
  double sum = 0;
  for (const Layer& layer : model.layers) {
    sum += forward_of(layer, model, [](LayerKind kind) {
      return kind == LayerKind::Conv2d || kind == LayerKind::Linear;
    });
  }
  EXPECT_EQ(sum, 2.0 * 4'089'184'256 + 1000);
}

TEST(ResNet, StagesAreCutBetweenBlocksAndImagesShrink) {
  const Model model = model_preset("resnet50");
  ASSERT_EQ(model.layers.size(), 18U);
  EXPECT_EQ(model.layers[0].out, 64 * 56 * 56);
  EXPECT_EQ(model.layers[1].out, 256 * 56 * 56);
  EXPECT_EQ(model.layers[4].out, 512 * 28 * 28);
  EXPECT_EQ(model.layers[8].out, 1024 * 14 * 14);
  EXPECT_EQ(model.layers[16].out, 2048 * 7 * 7);
  EXPECT_EQ(model.layers[17].out, 1000);
  // Of 16 blocks only the first of a group projects its shortcut.
  int projections = 0;
  for (std::size_t k = 1; k < 17; ++k) projections += !model.layers[k].inner[0].shortcut.empty();
  EXPECT_EQ(projections, 4);
}

TEST(ResNet, JsonGivesTheSameModelBack) {
  for (const auto name : {"resnet50", "resnet50-small", "resnet-tiny"}) {
    const Model model = model_preset(name);
    const Model back = read(to_text(to_json(model)));
    EXPECT_EQ(back.layers, model.layers) << name;
    EXPECT_EQ(back.loss, model.loss);
  }
}

TEST(ImageLayers, TakeTheImageFromTheLayerBefore) {
  const Model model = read(with_layers(R"(
    {"kind": "conv2d", "image": [4, 9, 7], "channels": 6, "kernel": 3, "stride": 2, "padding": 1,
     "groups": 2, "bias": false},
    {"kind": "batch_norm"}, {"kind": "relu"},
    {"kind": "average_pool", "kernel": 2}, {"kind": "global_average_pool"},
    {"kind": "batch_norm"}, {"kind": "linear", "out": 5})"));
  EXPECT_EQ(model.layers[0].image_out, (ImageShape{6, 5, 4}));
  EXPECT_EQ(model.layers[2].out, 6 * 5 * 4);
  EXPECT_EQ(model.layers[3].image_out, (ImageShape{6, 2, 2}));  // a stride like the kernel
  EXPECT_EQ(model.layers[4].out, 6);
  EXPECT_EQ(model.layers[5].image, (ImageShape{6, 1, 1}));
  EXPECT_EQ(read(to_text(to_json(model))).layers, model.layers);
}

TEST(ImageLayers, FootprintsCountWindowsAndChannels) {
  Model model;
  const ImageShape image{4, 5, 5};
  const exec::LayerFootprint conv =
      exec::footprint(conv2d_layer("", image, 6, {3, 2, 1}, true, 2), model, 2);
  // 2 images of 6 · 3 · 3 numbers, behind each of them 2 · 3 · 3.
  EXPECT_EQ(conv.parameters, 6 * 18 + 6);
  EXPECT_EQ(conv.forward_flops, 2.0 * 108 * 18 + 108);
  EXPECT_EQ(conv.input_gradient_flops, 2.0 * 108 * 18);
  EXPECT_EQ(conv.output_bytes, 2 * 54 * 4);
  const exec::LayerFootprint norm = exec::footprint(batch_norm_layer("", image), model, 2);
  EXPECT_EQ(norm.parameters, 8);
  const exec::LayerFootprint pool =
      exec::footprint(pool_layer("", LayerKind::MaxPool, image, {3, 2, 1}), model, 2);
  EXPECT_EQ(pool.parameters, 0);
  EXPECT_EQ(pool.forward_flops, 2 * 36 * 9);
}

TEST(ImageLayers, WhatDoesNotFitIsRefusedAtItsPlace) {
  const std::string conv = R"({"kind": "conv2d", "image": [3, 8, 8], "channels": 4, "kernel": 3})";
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "max_pool", "kernel": 2})"), "/layers/0");
  EXPECT_EQ(
      pointer_of_refusal(R"({"kind": "conv2d", "image": [3, 8], "channels": 4, "kernel": 3})"),
      "/layers/0/image");
  EXPECT_EQ(
      pointer_of_refusal(R"({"kind": "conv2d", "image": [3, 8, 8], "channels": 4, "kernel": 9})"),
      "/layers/0/kernel");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "conv2d", "image": [3, 8, 8], "channels": 4, "kernel": 3,
                                   "groups": 2})"),
            "/layers/0/groups");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "max_pool", "image": [3, 8, 8], "kernel": 2,
                                   "padding": 2})"),
            "/layers/0/padding");
  EXPECT_EQ(pointer_of_refusal(conv + R"(, {"kind": "batch_norm", "image": [4, 5, 5]})"),
            "/layers/1/image");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "linear", "in": 4, "out": 12},
                                  {"kind": "max_pool", "image": [3, 3, 1], "kernel": 1})"),
            "/layers/1/image");
  EXPECT_EQ(pointer_of_refusal(R"({"kind": "residual", "layers": [)" + conv + "]}"),
            "/layers/0/layers");
  EXPECT_EQ(
      pointer_of_refusal(R"({"kind": "residual", "layers": [)" + conv +
                         R"(], "shortcut": [{"kind": "conv2d", "channels": 4, "kernel": 5}]})"),
      "/layers/0/layers");
  EXPECT_EQ(pointer_of_refusal(conv + R"(, {"kind": "linear", "in": 7, "out": 3})"),
            "/layers/1/in");
}

}  // namespace image_model_test
}  // namespace pipewright
