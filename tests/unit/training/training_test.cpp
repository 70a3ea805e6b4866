// Training is real: the presets learn.
#include <gtest/gtest.h>

#include <string>

#include "exec/devices/cpu/serial.hpp"

namespace pipewright::exec {
namespace training_test {

const std::string kText = PIPEWRIGHT_SOURCE_DIR "/docs/semantics.md";

// An untrained byte-level model loses ln 256 = 5.545 a byte. English with Markdown has frequencies
// worth some 3.3; below 3 the model has also learned which byte follows which.
TEST(Training, GptTinyLearnsFromTheRepositorysOwnText) {
  const Model model = model_preset("gpt-tiny");
  const SerialSpec spec{4, 4, 1, optimizer_spec("adamw", 3e-3)};
  const auto data = make_data(model, {spec.micro_batch_size, spec.micro_batches, spec.seed}, kText);
  SerialRun run(model, spec);
  const double first = run.step(*data, 0);
  EXPECT_NEAR(first, 5.545, 0.3);
  double last = 0;
  for (int step = 1; step < 120; ++step) last = run.step(*data, step);
  EXPECT_LT(last, 3.0);
}

TEST(Training, TheSameSeedGivesTheSameLossesAndAnotherDoesNot) {
  const Model model = model_preset("gpt-tiny");
  const auto losses = [&](std::uint64_t seed) {
    SerialRun run(model, {2, 2, seed, {}});
    const auto data = make_data(model, {2, 2, seed}, kText);
    return std::vector<double>{run.step(*data, 0), run.step(*data, 1), run.step(*data, 2)};
  };
  EXPECT_EQ(losses(1), losses(1));
  EXPECT_NE(losses(1), losses(2));
}

// A perceptron on a linear map. The targets have the variance of four products of two uniforms,
// 4 · (1/3)^2 = 0.44, which is what a model that knows nothing loses.
TEST(Training, PerceptronLearnsALinearMap) {
  Model model;
  model.loss = LossKind::Mse;
  Layer up, relu, down;
  up.in = 16;
  up.out = relu.in = relu.out = down.in = 64;
  relu.kind = LayerKind::Relu;
  down.out = 8;
  model.layers = {up, relu, down};
  for (const char* optimizer : {"adamw", "sgd"}) {
    const double rate = std::string(optimizer) == "sgd" ? 0.5 : 3e-3;
    SerialRun run(model, {16, 4, 1, optimizer_spec(optimizer, rate)});
    const auto data = make_data(model, {16, 4, 1}, "");
    EXPECT_NEAR(run.step(*data, 0), 0.44, 0.25) << optimizer;
    double last = 0;
    for (int step = 1; step < 300; ++step) last = run.step(*data, step);
    EXPECT_LT(last, 0.1) << optimizer;
  }
}

}  // namespace training_test
}  // namespace pipewright::exec
