// Stages of a model chained by hand: whatever the partition, the order of micro-batches and the
// split of the backward, the losses and gradients are those of the serial run, bit for bit.
#include "exec/devices/cpu/stage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/layers.hpp"
#include "core/model/transformer.hpp"
#include "core/model/weights.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "tests/unit/loss_slope.hpp"

namespace pipewright::exec {
namespace stage_test {

using cpu::Stage;

Layer block(std::string name, int width, LayerKind activation) {
  Layer attention = layer_of_width("attention", LayerKind::CausalSelfAttention, width);
  attention.heads = 3;
  return layer_group(
      std::move(name), LayerKind::Sequential,
      {layer_group("", LayerKind::Residual,
                   {layer_of_width("norm", LayerKind::LayerNorm, width), attention}),
       layer_group(
           "", LayerKind::Residual,
           {layer_of_width("norm", LayerKind::LayerNorm, width), linear_layer("up", width, 31),
            layer_of_width("", activation, 31), linear_layer("down", 31, width)})});
}

/// A small transformer with every kind of layer, of sizes that nothing divides.
Model small_transformer_with(LayerKind activation) {
  Layer embedding = layer_of_width("embedding", LayerKind::Embedding, 15);
  embedding.in = 1;
  embedding.vocabulary = 256;
  embedding.positions = 7;
  Model model;
  model.name = "small";
  model.sequence = 7;
  // With relu, the residual around it is the case where a layer keeps the array that the sum
  // would go to.
  model.layers = {embedding,
                  block("a", 15, LayerKind::Gelu),
                  layer_group("r", LayerKind::Residual, {layer_of_width("", activation, 15)}),
                  block("b", 15, activation),
                  layer_of_width("norm", LayerKind::LayerNorm, 15),
                  linear_layer("head", 15, 256, false)};
  return model;
}

Model small_transformer() { return small_transformer_with(LayerKind::Relu); }

/// Two blocks in Llama's style, of sizes that nothing divides; two heads of queries share a head of
/// keys.
Model small_llama() {
  Model model;
  model.name = "small llama";
  model.sequence = 7;
  model.layers = expand({.hidden = 24,
                         .layers = 2,
                         .heads = 4,
                         .ffn = 13,
                         .vocabulary = 256,
                         .sequence = 7,
                         .style = TransformerStyle::Llama,
                         .kv_heads = 2});
  return model;
}

/// The same with three experts in a block.
Model small_mixtral_with(int top_k) {
  Model model;
  model.name = "small mixtral";
  model.sequence = 7;
  model.layers = expand({.hidden = 24,
                         .layers = 2,
                         .heads = 4,
                         .ffn = 13,
                         .vocabulary = 256,
                         .sequence = 7,
                         .style = TransformerStyle::Llama,
                         .kv_heads = 2,
                         .choice = {.experts = 3, .top_k = top_k},
                         .shared_ffn = 5});
  return model;
}

Model small_mixtral() { return small_mixtral_with(2); }
/// Where a row changes its experts the loss jumps; here it has all of them.
Model smooth_mixtral() { return small_mixtral_with(3); }

Model small_perceptron() {
  Model model;
  model.name = "perceptron";
  model.loss = LossKind::Mse;
  model.layers = {linear_layer("up", 9, 21), layer_of_width("relu", LayerKind::Relu, 21),
                  linear_layer("down", 21, 5)};
  return model;
}

/// Begins with a residual, whose own input nobody wants a gradient of.
Model residual_first() {
  Model model = small_perceptron();
  model.layers = {
      layer_group("r", LayerKind::Residual,
                  {linear_layer("a", 9, 9), layer_of_width("gelu", LayerKind::Gelu, 9)}),
      linear_layer("down", 9, 5)};
  return model;
}

std::unique_ptr<DataSource> data_for(const Model& model, const DataShape& shape) {
  std::string text;
  for (int i = 0; i < 999; ++i) text += static_cast<char>(i * i % 251);
  return model.loss == LossKind::Mse ? vector_source(model, shape)
                                     : text_source(model, shape, text, "text");
}

constexpr int kSamples = 3, kMicroBatches = 4;
constexpr std::uint64_t kSeed = 11;

/// A model cut into stages, run in this thread.
class Chain {
 public:
  Chain(const Model& model, const std::vector<int>& cuts) {
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      stages_.emplace_back(model, cuts[i], cuts[i + 1], kSamples, kMicroBatches, kSeed);
    }
  }

  void forward(int m, const MicroBatch& batch) {
    std::vector<float> message;
    for (Stage& stage : stages_) {
      stage.set_batch(m, batch);
      message = stage.forward(m, std::move(message));
    }
  }
  void backward_input(int m) {
    std::vector<float> message;
    for (std::size_t i = stages_.size(); i-- > 0;) {
      message = stages_[i].backward_input(m, std::move(message));
    }
  }
  void backward_weight(int m) {
    for (Stage& stage : stages_) stage.backward_weight(m);
  }
  void update(int step) {
    for (Stage& stage : stages_) stage.update(step);
  }

  std::deque<Stage>& stages() { return stages_; }
  VerifyReport against(const SerialRun& serial) const {
    std::vector<const Stage*> pointers;
    for (const Stage& stage : stages_) pointers.push_back(&stage);
    return verify(parameters_of(pointers), serial.stage().parameters());
  }

 private:
  std::deque<Stage> stages_;
};

void expect_same_bits(const VerifyReport& report) {
  EXPECT_TRUE(report.gradients.bitwise) << report.gradients.worst;
  EXPECT_TRUE(report.parameters.bitwise) << report.parameters.worst;
  EXPECT_EQ(report.gradients.max_ulp, 0);
  EXPECT_EQ(report.gradients.norm_rel, 0);
  EXPECT_GT(report.compared, 3);
}

struct Case {
  const char* name;
  Model (*model)();
  std::vector<int> cuts;
};

class Partition : public testing::TestWithParam<Case> {};

// GPipe with the whole backward split off: F of all, I of all (last first), then W in ascending
// order. Sums over micro-batches are then taken in the serial order, so every bit must agree.
TEST_P(Partition, GivesTheSerialRunsBits) {
  const Model model = GetParam().model();
  const auto data = data_for(model, {kSamples, kMicroBatches, kSeed});
  SerialRun serial(model, {kSamples, kMicroBatches, kSeed, {}});
  Chain chain(model, GetParam().cuts);
  for (int step = 0; step < 3; ++step) {
    const double expected = serial.step(*data, step);
    for (int m = 0; m < kMicroBatches; ++m) chain.forward(m, data->micro_batch(step, m));
    for (int m = kMicroBatches; m-- > 0;) chain.backward_input(m);
    for (int m = 0; m < kMicroBatches; ++m) chain.backward_weight(m);
    chain.update(step);
    EXPECT_EQ(chain.stages().back().loss(), expected) << "step " << step;
    expect_same_bits(chain.against(serial));
  }
  for (const Stage& stage : chain.stages()) EXPECT_EQ(stage.live_activation_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Partition,
    testing::Values(Case{"transformer1", small_transformer, {0, 6}},
                    Case{"transformer2", small_transformer, {0, 2, 6}},
                    Case{"transformer4", small_transformer, {0, 1, 3, 4, 6}},
                    Case{"transformer6", small_transformer, {0, 1, 2, 3, 4, 5, 6}},
                    Case{"llama2", small_llama, {0, 2, 4}},
                    Case{"mixtral2", small_mixtral, {0, 2, 4}},
                    Case{"perceptron2", small_perceptron, {0, 1, 3}},
                    Case{"residualFirst", residual_first, {0, 1, 2}},
                    Case{"perceptron3", small_perceptron, {0, 2, 3}}),
    [](const auto& given) { return given.param.name; });

// W in another order than the serial run's changes the order of a float sum and nothing else.
TEST(StageTest, ReversedWeightGradientsAgreeToRounding) {
  const Model model = small_transformer();
  const auto data = data_for(model, {kSamples, kMicroBatches, kSeed});
  SerialRun serial(model, {kSamples, kMicroBatches, kSeed, {}});
  Chain chain(model, {0, 2, 6});
  serial.gradients(*data, 0);
  for (int m = 0; m < kMicroBatches; ++m) {
    chain.forward(m, data->micro_batch(0, m));
    chain.backward_input(m);
  }
  for (int m = kMicroBatches; m-- > 0;) chain.backward_weight(m);
  const VerifyReport report = chain.against(serial);
  EXPECT_LT(report.gradients.norm_rel, 1e-6);
  EXPECT_FALSE(report.gradients.bitwise);
  EXPECT_TRUE(report.parameters.bitwise);  // nobody has updated them
}

Model with_gelu() { return small_transformer_with(LayerKind::Gelu); }

struct Smoothness {
  Model (*model)();
  double tolerance;  // relative
  std::size_t parameters;
};

class Gradient : public testing::TestWithParam<Smoothness> {};

// The gradient of the mean loss over the step, by central differences of the stage's own loss. A
// float loss of about 5 is good to 3e-7, so a step of 2e-3 finds a derivative to some 1e-4; where a
// relu's kink lies within the step the difference is a few percent off.
TEST_P(Gradient, IsThatOfTheLoss) {
  const Model model = GetParam().model();
  const auto data = data_for(model, {kSamples, kMicroBatches, kSeed + 1});
  SerialRun serial(model, {kSamples, kMicroBatches, kSeed, {}});
  serial.gradients(*data, 0);
  const auto views = serial.stage().parameters();
  for (const ParameterView& view : views) {
    expect_slope_of_loss(serial, *data, view, {2e-3F, 3e-4, GetParam().tolerance});
  }
  EXPECT_EQ(views.size(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient,
                         testing::Values(Smoothness{with_gelu, 0.005, 2 + 2 * 12 + 2 + 1},
                                         Smoothness{small_transformer, 0.05, 2 + 2 * 12 + 2 + 1},
                                         Smoothness{small_llama, 0.005, 1 + 2 * 6 + 1 + 1},
                                         Smoothness{smooth_mixtral, 0.005, 1 + 2 * 9 + 1 + 1}));

// Weights depend on the seed and on where they stand in the model, so layers of one shape differ.
TEST(StageTest, WeightsStartDifferentInEachLayerAndForEachSeed) {
  const Model model = small_transformer();
  const Stage stage(model, 0, 6, 1, 1, kSeed), other(model, 0, 6, 1, 1, kSeed + 1);
  std::set<std::vector<float>> starts;
  std::size_t matrices = 0;
  for (const Stage* one : {&stage, &other}) {
    for (const ParameterView& view : one->parameters()) {
      if (view.name.find("weight") == std::string::npos) continue;
      starts.emplace(view.value.begin(), view.value.end());
      ++matrices;
    }
  }
  EXPECT_EQ(matrices, 2U * (2 * 4 + 1));
  EXPECT_EQ(starts.size(), matrices);
}

// What the profiler times: the loss without a layer. From the output 0 the loss is the mean square
// of the targets, and its gradient -2 target / (micro-batches · elements).
TEST(StageTest, TheLossCanBeAStageOfItsOwn) {
  const Model model = small_perceptron();
  const MicroBatch batch = data_for(model, {kSamples, kMicroBatches, kSeed})->micro_batch(0, 0);
  Stage stage(model, 3, 3, kSamples, kMicroBatches, kSeed);
  ASSERT_EQ(stage.input_floats(), 15U);
  stage.set_batch(0, batch);
  EXPECT_TRUE(stage.forward(0, std::vector<float>(15, 0.0F)).empty());
  double squares = 0;
  for (const float t : batch.targets) squares += static_cast<double>(t) * static_cast<double>(t);
  EXPECT_NEAR(stage.loss(0), squares / 15, 1e-6);
  const std::vector<float> gradient = stage.backward_input(0, {});
  stage.backward_weight(0);
  ASSERT_EQ(gradient.size(), 15U);
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_NEAR(gradient[i], -2 * batch.targets[i] / (kMicroBatches * 15), 1e-7);
  }
}

TEST(StageTest, ParameterCountIsTheFootprints) {
  const Model model = model_preset("gpt-tiny");
  std::int64_t expected = 0;
  for (const Layer& layer : model.layers)
    expected += static_cast<std::int64_t>(parameter_count(layer));
  const Stage stage(model, 0, static_cast<int>(model.layers.size()), 1, 1, kSeed);
  EXPECT_EQ(stage.parameter_count(), expected);
}

TEST(StageTest, CallsOutOfOrderAreBugs) {
  const Model model = small_perceptron();
  const auto data = data_for(model, {kSamples, kMicroBatches, kSeed});
  Stage stage(model, 0, 3, kSamples, kMicroBatches, kSeed);
  EXPECT_THROW(stage.forward(0, {}), Bug);  // no data yet
  EXPECT_THROW(stage.loss(), Bug);
  EXPECT_THROW(stage.set_batch(kMicroBatches, data->micro_batch(0, 0)), Bug);
  stage.set_batch(0, data->micro_batch(0, 0));
  EXPECT_THROW(stage.backward_input(0, {}), Bug);
  EXPECT_THROW(stage.forward(0, {1.0F}), Bug);  // the first stage receives nothing
  stage.forward(0, {});
  EXPECT_THROW(stage.forward(0, {}), Bug);
  EXPECT_THROW(stage.backward_weight(0), Bug);
  EXPECT_THROW(stage.update(0), Bug);
  EXPECT_THROW(stage.set_batch(0, data->micro_batch(1, 0)), Bug);  // its labels are still needed
  stage.backward_input(0, {});
  stage.backward_weight(0);
  EXPECT_THROW(stage.backward_weight(0), Bug);
  EXPECT_NO_THROW(stage.update(0));
  Stage middle(model, 1, 2, kSamples, kMicroBatches, kSeed);
  EXPECT_THROW(middle.forward(0, std::vector<float>(middle.input_floats() - 1)), Bug);
}

TEST(StageTest, MemoryGrowsWithMicroBatchesUnderWayAndIsUsedAgain) {
  const Model model = small_transformer();
  const auto data = data_for(model, {kSamples, kMicroBatches, kSeed});
  Stage stage(model, 0, 6, kSamples, kMicroBatches, kSeed);
  std::int64_t one = 0;
  for (int step = 0; step < 3; ++step) {
    for (int m = 0; m < kMicroBatches; ++m) {
      stage.set_batch(m, data->micro_batch(step, m));
      stage.forward(m, {});
      if (m == 0) one = stage.live_activation_bytes();
      EXPECT_EQ(stage.live_activation_bytes(), (m + 1) * one);
    }
    for (int m = 0; m < kMicroBatches; ++m) {
      stage.backward_input(m, {});
      stage.backward_weight(m);
    }
    EXPECT_EQ(stage.live_activation_bytes(), 0);
  }
  EXPECT_GT(one, 0);
}

TEST(StageTest, BadDataIsTheInputsFault) {
  const Model model = small_transformer();
  Stage stage(model, 0, 6, kSamples, kMicroBatches, kSeed);
  MicroBatch batch = data_for(model, {kSamples, kMicroBatches, kSeed})->micro_batch(0, 0);
  batch.tokens[3] = 256;
  EXPECT_THROW(stage.set_batch(0, batch), InputError);
  batch.tokens[3] = 255;
  batch.labels.pop_back();
  EXPECT_THROW(stage.set_batch(0, batch), InputError);
}

TEST(StageTest, LayersThatDoNotFitAreRefusedByName) {
  const auto message = [](const Model& model) {
    try {
      Stage(model, 0, static_cast<int>(model.layers.size()), 1, 1, kSeed);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Model model = small_perceptron();
  model.layers[2].in = 20;
  EXPECT_NE(message(model).find("2.down"), std::string::npos) << message(model);
  model = small_transformer();
  model.layers[1].inner[0].inner[1].heads = 4;  // does not divide 15
  EXPECT_NE(message(model).find("1.a/0/1.attention"), std::string::npos) << message(model);
  model = small_transformer();
  std::swap(model.layers[0], model.layers[1]);
  EXPECT_NE(message(model).find("embedding"), std::string::npos) << message(model);
}

// One AdamW step from gradient g: the corrected moments are g and g^2, so every weight moves by the
// learning rate against the sign of its gradient. SGD moves by rate · g.
TEST(OptimizerTest, FirstStepsAreKnown) {
  Parameter p{"p", false, AlignedFloats{1.0F, 2.0F}, AlignedFloats{0.5F, -4.0F}};
  OptimizerSpec spec = optimizer_spec("adamw", 0.125);
  Optimizer(spec, {&p}).update(0);
  EXPECT_NEAR(p.value[0], 0.875F, 1e-6F);
  EXPECT_NEAR(p.value[1], 2.125F, 1e-6F);
  Optimizer(optimizer_spec("sgd", 0.125), {&p}).update(0);
  EXPECT_NEAR(p.value[0], 0.8125F, 1e-6F);
  EXPECT_NEAR(p.value[1], 2.625F, 1e-6F);
  EXPECT_THROW(optimizer_spec("adam", 0.1), InputError);
  EXPECT_THROW(optimizer_spec("sgd", 0), InputError);
}

}  // namespace stage_test
}  // namespace pipewright::exec
