// Training data: deterministic, different from step to step, and refused where it does not fit.
#include "exec/data/data.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace data_test {

const DataShape kShape{2, 4, 5};

std::string alphabet() {
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>('a' + i % 26);
  return text;
}

TEST(TextSource, LabelsAreTheNextBytes) {
  const Model model = model_preset("gpt-tiny");
  const auto data = text_source(model, kShape, alphabet(), "text");
  const MicroBatch batch = data->micro_batch(3, 1);
  const auto length = static_cast<std::size_t>(model.sequence);
  ASSERT_EQ(batch.tokens.size(), 2 * length);
  ASSERT_EQ(batch.labels.size(), 2 * length);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.labels[i], batch.tokens[i] == 'z' ? 'a' : batch.tokens[i] + 1);
    if (i % length != 0) {
      EXPECT_EQ(batch.tokens[i], batch.labels[i - 1]);
    }
  }
}

TEST(TextSource, IsAFunctionOfSeedStepAndMicroBatch) {
  const Model model = model_preset("gpt-tiny");
  std::string text;
  for (unsigned i = 0; i < 5000; ++i) text += static_cast<char>(i * i * 31 >> 3);
  const auto one = text_source(model, kShape, text, "text");
  const auto same = text_source(model, kShape, text, "text");
  const auto other = text_source(model, {2, 4, 6}, text, "text");
  std::set<std::vector<std::int32_t>> seen;
  for (int step = 0; step < 5; ++step) {
    for (int m = 0; m < 4; ++m) {
      const auto tokens = one->micro_batch(step, m).tokens;
      EXPECT_EQ(tokens, same->micro_batch(step, m).tokens);
      EXPECT_NE(tokens, other->micro_batch(step, m).tokens);
      seen.insert(tokens);
    }
  }
  EXPECT_EQ(seen.size(), 20U);
}

TEST(TextSource, RefusesWhatDoesNotFit) {
  Model model = model_preset("gpt-tiny");
  const auto length = static_cast<std::size_t>(model.sequence);
  EXPECT_NO_THROW(text_source(model, kShape, std::string(length + 1, 'x'), "t"));
  EXPECT_THROW(text_source(model, kShape, std::string(length, 'x'), "t"), InputError);
  EXPECT_THROW(make_data(model, kShape, "/no/such/file"), InputError);
  EXPECT_THROW(make_data(model, kShape, ""), InputError);
  EXPECT_THROW(vector_source(model, kShape), InputError);
  model.layers.front().vocabulary = 'z';  // one too few for a text with a z
  EXPECT_THROW(text_source(model, kShape, alphabet(), "t"), InputError);
  EXPECT_THROW(text_source(model_preset("mlp"), kShape, alphabet(), "t"), InputError);
}

TEST(VectorSource, TargetsAreLinearInTheInputs) {
  // If targets are one linear map of the inputs, rows that are combined combine. With 3 inputs,
  // every fourth row is a combination of the three before it; solve for it by Cramer's rule.
  Model model;
  model.loss = LossKind::Mse;
  Layer layer;
  layer.in = 3;
  layer.out = 2;
  model.layers = {layer};
  const MicroBatch batch = vector_source(model, {4, 1, 1})->micro_batch(0, 0);
  ASSERT_EQ(batch.inputs.size(), 12U);
  ASSERT_EQ(batch.targets.size(), 8U);
  const auto x = [&](int row, int j) {
    return static_cast<double>(batch.inputs[static_cast<std::size_t>(row * 3 + j)]);
  };
  const auto determinant = [&](int a, int b, int c) {
    return x(a, 0) * (x(b, 1) * x(c, 2) - x(b, 2) * x(c, 1)) -
           x(a, 1) * (x(b, 0) * x(c, 2) - x(b, 2) * x(c, 0)) +
           x(a, 2) * (x(b, 0) * x(c, 1) - x(b, 1) * x(c, 0));
  };
  const double d = determinant(0, 1, 2);
  ASSERT_GT(std::abs(d), 1e-3);
  const double a = determinant(3, 1, 2) / d, b = determinant(0, 3, 2) / d,
               c = determinant(0, 1, 3) / d;
  for (std::size_t j = 0; j < 2; ++j) {
    EXPECT_NEAR(a * batch.targets[j] + b * batch.targets[2 + j] + c * batch.targets[4 + j],
                batch.targets[6 + j], 1e-4);
  }
}

TEST(VectorSource, LabelsLieAmongTheClasses) {
  Model model;
  Layer layer;
  layer.in = 8;
  layer.out = 5;
  model.layers = {layer};
  const MicroBatch batch = vector_source(model, {50, 1, 1})->micro_batch(0, 0);
  ASSERT_EQ(batch.labels.size(), 50U);
  const std::set<std::int32_t> classes(batch.labels.begin(), batch.labels.end());
  EXPECT_GE(*classes.begin(), 0);
  EXPECT_LT(*classes.rbegin(), 5);
  EXPECT_GT(classes.size(), 2U);
}

/// Everything of a step's batch, sample behind sample.
MicroBatch batch_of(const DataSource& data, std::int64_t step, const DataShape& shape) {
  MicroBatch all;
  for (int m = 0; m < shape.micro_batches; ++m) {
    const MicroBatch one = data.micro_batch(step, m);
    all.tokens.insert(all.tokens.end(), one.tokens.begin(), one.tokens.end());
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
    all.targets.insert(all.targets.end(), one.targets.begin(), one.targets.end());
  }
  return all;
}

/// Replicas ask for micro-batches of one common batch, so these cuts are theirs, too.
TEST(Sources, TheCutIntoMicroBatchesChangesNoSample) {
  Model regression;
  regression.loss = LossKind::Mse;
  Layer layer;
  layer.in = 5;
  layer.out = 3;
  regression.layers = {layer};
  for (const Model& model : {model_preset("gpt-tiny"), model_preset("resnet-tiny"), regression}) {
    SCOPED_TRACE(model.name);
    std::set<std::vector<float>> seen_inputs;
    std::set<std::vector<std::int32_t>> seen_tokens;
    for (const std::int64_t step : {0, 1, 7}) {
      const DataShape whole{16, 1, 5};
      const auto expected =
          batch_of(*make_data(model, whole, PIPEWRIGHT_SOURCE_DIR "/LICENSE"), step, whole);
      EXPECT_EQ(expected.tokens.empty(), !expected.inputs.empty());
      for (const int size : {1, 2, 4, 8}) {
        const DataShape shape{size, 16 / size, 5};
        const auto data = make_data(model, shape, PIPEWRIGHT_SOURCE_DIR "/LICENSE");
        const MicroBatch batch = batch_of(*data, step, shape);
        EXPECT_EQ(batch.tokens, expected.tokens) << size;
        EXPECT_EQ(batch.inputs, expected.inputs) << size;
        EXPECT_EQ(batch.labels, expected.labels) << size;
        EXPECT_EQ(batch.targets, expected.targets) << size;
      }
      seen_inputs.insert(expected.inputs);
      seen_tokens.insert(expected.tokens);
    }
    EXPECT_EQ(seen_inputs.size() + seen_tokens.size(), 4U) << "steps are alike";
  }
}

}  // namespace data_test
}  // namespace pipewright::exec
