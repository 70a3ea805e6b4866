// Image models as a whole: they learn, their gradient is that of the loss, and the running
// statistics of batch norm are what they should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/model/image.hpp"
#include "core/model/resnet.hpp"
#include "core/model/weights.hpp"
#include "exec/data/image_data.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "tests/unit/loss_slope.hpp"

namespace pipewright::exec {
namespace image_training_test {

using cpu::Stage;

/// What a model that knows nothing loses, and what one loses that has seen through the stripes.
TEST(ImageTraining, ASmallResNetLearnsToTellStripesApart) {
  const Model model = model_preset("resnet-tiny");
  const SerialSpec spec{8, 2, 1, optimizer_spec("adamw", 3e-3)};
  const auto data = make_data(model, {spec.micro_batch_size, spec.micro_batches, spec.seed}, "");
  SerialRun run(model, spec);
  EXPECT_NEAR(run.step(*data, 0), std::log(4.0), 0.8);
  double last = 0;
  for (int step = 1; step < 60; ++step) last = run.step(*data, step);
  EXPECT_LT(last, 0.3);
}

TEST(ImageSource, ImagesAreAFunctionOfTheSeedAndDifferFromEachOther) {
  const Model model = model_preset("resnet-tiny");
  const auto one = image_source(model, {4, 2, 1}), same = image_source(model, {4, 2, 1});
  std::set<std::vector<float>> seen;
  std::set<int> labels;
  for (int step = 0; step < 4; ++step) {
    for (int m = 0; m < 2; ++m) {
      const MicroBatch batch = one->micro_batch(step, m);
      EXPECT_EQ(batch.inputs, same->micro_batch(step, m).inputs);
      EXPECT_EQ(batch.inputs.size(), 4U * 3 * 16 * 16);
      seen.insert(batch.inputs);
      labels.insert(batch.labels.begin(), batch.labels.end());
    }
  }
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_EQ(labels, (std::set<int>{0, 1, 2, 3}));
}

/// One of everything: groups, a bias, all pools, a shortcut of its own, an average to end with.
Model small_image_model() {
  const ImageShape image{2, 7, 6};
  Model model;
  Layer conv = conv2d_layer("conv", image, 4, {3, 1, 1}, true, 2);
  Layer residual;
  residual.name = "residual";
  residual.kind = LayerKind::Residual;
  residual.inner = {batch_norm_layer("norm", conv.image_out),
                    pool_layer("max", LayerKind::MaxPool, conv.image_out, {3, 2, 1})};
  residual.shortcut = {pool_layer("mean", LayerKind::AveragePool, conv.image_out, {3, 2, 1})};
  residual.in = conv.out;
  residual.out = residual.inner.back().out;
  const ImageShape behind = residual.inner.back().image_out;
  Layer classes;
  classes.name = "classes";
  classes.in = behind.channels;
  classes.out = 3;
  model.layers = {conv, residual, conv2d_layer("smooth", behind, 4, {1, 1, 0}, false),
                  global_average_pool_layer("pool", behind), classes};
  return model;
}

TEST(ImageTraining, TheGradientIsThatOfTheLoss) {
  const Model model = small_image_model();
  const auto data = make_data(model, {3, 2, 5}, "");
  SerialRun serial(model, {3, 2, 5, {}});
  serial.gradients(*data, 0);
  int compared = 0;
  for (const ParameterView& view : serial.stage().parameters()) {
    if (view.name.find("running") != std::string::npos) continue;
    if (view.name.find("updates") != std::string::npos) continue;
    expect_slope_of_loss(serial, *data, view, {2e-3F, 5e-4, 0.02});
    ++compared;
  }
  EXPECT_EQ(compared, 2 + 2 + 1 + 2);
}

/// A batch norm and the loss: what comes in is what the statistics are of.
Model only_norm() {
  Model model;
  model.loss = LossKind::Mse;
  model.layers = {batch_norm_layer("norm", {2, 1, 2})};
  return model;
}

std::vector<float> value_of(const Stage& stage, const std::string& name) {
  for (const ParameterView& view : stage.parameters()) {
    if (view.name == name) return {view.value.begin(), view.value.end()};
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

void train_on(Stage& stage, int m, std::vector<float> inputs) {
  MicroBatch batch;
  batch.targets.assign(inputs.size(), 0.0F);
  batch.inputs = std::move(inputs);
  stage.set_batch(m, batch);
  stage.forward(m, {});
}

TEST(RunningStatistics, MoveATenthTowardsTheMeanOfTheStepsMicroBatches) {
  for (const bool ascending : {true, false}) {
    Stage stage(only_norm(), 0, 1, 1, 2, 1);
    // Channel 0 is {1, 3} and {5, 5}: means 2 and 5, variances of a sample 2 and 0.
    train_on(stage, 0, {1, 3, 0, 0});
    train_on(stage, 1, {5, 5, 4, 0});
    for (int k = 0; k < 2; ++k) stage.backward_input(ascending ? k : 1 - k, {});
    for (int k = 0; k < 2; ++k) stage.backward_weight(ascending ? k : 1 - k);
    stage.update(0);
    EXPECT_EQ(value_of(stage, "0.norm/running_mean"), (std::vector<float>{0.35F, 0.1F}));
    const std::vector<float> variance = value_of(stage, "0.norm/running_variance");
    EXPECT_FLOAT_EQ(variance[0], 0.9F + 0.1F * 1);
    EXPECT_FLOAT_EQ(variance[1], 0.9F + 0.1F * 4);
    EXPECT_EQ(value_of(stage, "0.norm/updates"), std::vector<float>{1.0F});
  }
}

TEST(RunningStatistics, AreLeftAloneByTheOptimizerAndCountAsNoParameters) {
  Stage stage(only_norm(), 0, 1, 1, 1, 1);
  EXPECT_EQ(stage.parameter_count(), 4);
  stage.update(0);  // nothing has been trained: nothing moves
  EXPECT_EQ(value_of(stage, "0.norm/running_mean"), (std::vector<float>{0, 0}));
  EXPECT_EQ(value_of(stage, "0.norm/running_variance"), (std::vector<float>{1, 1}));
}

TEST(RunningStatistics, AreNeitherInTheNormOfTheGradientsNorScaledByIt) {
  Stage stage(only_norm(), 0, 1, 1, 1, 1);
  train_on(stage, 0, {100, 300, -2, 0});  // a mean far larger than any gradient
  stage.backward_input(0, {});
  stage.backward_weight(0);
  double squares = 0;
  for (const ParameterView& view : stage.parameters()) {
    if (view.name != "0.norm/scale" && view.name != "0.norm/shift") continue;
    for (const float g : view.gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  EXPECT_GT(squares, 0.01);
  EXPECT_NEAR(stage.squares().norm(), std::sqrt(squares), 1e-6);
  stage.scale_gradients(0.5F);
  EXPECT_NEAR(stage.squares().norm(), std::sqrt(squares) / 2, 1e-6);
  stage.update(0);
  EXPECT_EQ(value_of(stage, "0.norm/running_mean"), (std::vector<float>{20, -0.1F}));
}

TEST(RunningStatistics, TakeThePlaceOfTheBatchsOwnInEvaluation) {
  Stage stage(only_norm(), 0, 1, 1, 1, 1);
  const std::vector<float> inputs{1, 3, -2, 0};
  train_on(stage, 0, inputs);  // normalised by its own statistics: the squares' mean is 1
  EXPECT_NEAR(stage.loss(0), 1.0, 1e-3);
  stage.backward_input(0, {});
  stage.backward_weight(0);
  stage.discard_gradients();
  stage.set_evaluating(true);  // by mean 0 and variance 1: nothing changes
  train_on(stage, 0, inputs);
  EXPECT_NEAR(stage.loss(0), (1 + 9 + 4) / 4.0, 1e-3);
}

TEST(ImageTraining, StagesHoldTheParametersOfTheFootprint) {
  for (const char* name : {"resnet-tiny", "resnet50-small"}) {
    const Model model = model_preset(name);
    std::int64_t expected = 0;
    for (const Layer& layer : model.layers)
      expected += static_cast<std::int64_t>(parameter_count(layer));
    const Stage stage(model, 0, static_cast<int>(model.layers.size()), 1, 1, 1);
    EXPECT_EQ(stage.parameter_count(), expected) << name;
  }
}

}  // namespace image_training_test
}  // namespace pipewright::exec
