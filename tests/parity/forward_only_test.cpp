// Evaluating and predicting with a pipeline gives the serial forward's numbers, bit for bit,
// whatever the schedule, the ranks and the number of samples; and nothing is kept for a backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/order/forward_order.hpp"
#include "tests/parity/forward_run.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {
namespace forward_only_test {

using exec::DataShape;
using exec::EvaluationReport;
using exec::RunMode;

constexpr std::uint64_t kSeed = 7;

/// A transformer of two blocks over bytes, or small_model() with either loss.
Model text_model() {
  Model model = model_preset("gpt-tiny");
  model.layers.erase(model.layers.begin() + 2, model.layers.begin() + 4);
  return model;
}

Model classifier() {
  Model model = small_model();
  model.loss = LossKind::SoftmaxCrossEntropy;
  return model;
}

Program forwards_of(const RunCase& c) {
  const Order order = planner::make_order(
      c.schedule,
      {.ranks = c.ranks, .micro_batches = c.micro_batches, .chunks = c.chunks, .parameters = {}});
  return lower(forward_order(order), comm_policy_preset(c.policy), {});
}

DataShape shape_of(int micro_batches, RunMode mode) {
  return {.samples = kMicroBatchSize,
          .micro_batches = micro_batches,
          .seed = kSeed,
          .shuffled = false,
          .with_answers = mode == RunMode::Evaluate};
}

exec::cpu::Training training_of(const Model& model, int micro_batches, RunMode mode,
                                const exec::DataSource& data) {
  exec::cpu::Training training;
  training.model = &model;
  training.micro_batch_size = kMicroBatchSize;
  training.micro_batches = micro_batches;
  training.seed = kSeed;
  training.data = &data;
  training.mode = mode;
  return training;
}

ForwardNumbers pipelined(const Model& model, const RunCase& c, RunMode mode,
                         const exec::DataSource& data, int steps) {
  const Program program = forwards_of(c);
  ForwardNumbers numbers;
  exec::cpu::Training training = training_of(model, program.micro_batches, mode, data);
  training.stages = equal_stages(model, program);
  training.outputs = into(numbers);
  const auto run = exec::cpu::run_on_cpu(program, costs_of(program, 1), training, {.steps = steps});
  EXPECT_TRUE(run.finished());
  numbers.report = run.evaluation.value_or(EvaluationReport{});
  return numbers;
}

ForwardNumbers serial(const Model& model, int micro_batches, RunMode mode,
                      const exec::DataSource& data, int steps) {
  return serial_forwards(training_of(model, micro_batches, mode, data), steps);
}

std::vector<RunCase> forward_cases() {
  std::vector<RunCase> cases;
  for (const int ranks : {1, 2, 4}) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "pipedream"}) {
      cases.push_back({schedule, ranks, 4, 1, "torch"});
    }
    for (const char* schedule : {"interleaved", "zbv", "hanayo", "v-min"}) {
      if (ranks > 1) cases.push_back({schedule, ranks, 4, 2, "torch"});
    }
  }
  cases.push_back({"chimera", 4, 8, 1, "torch"});
  cases.push_back({"1f1b", 2, 4, 1, "mpi-eager"});
  return cases;
}

class Forwards : public testing::TestWithParam<RunCase> {};

TEST_P(Forwards, EvaluateAsTheSerialForwardDoes) {
  for (const Model& model : {text_model(), small_model(), classifier()}) {
    if (model.layers.size() < static_cast<std::size_t>(forwards_of(GetParam()).stages)) continue;
    const DataShape shape = shape_of(GetParam().micro_batches, RunMode::Evaluate);
    const auto set =
        exec::make_data_set(model, shape, {PIPEWRIGHT_SOURCE_DIR "/LICENSE", "", ""}, 2);
    const auto found = pipelined(model, GetParam(), RunMode::Evaluate, *set.source, 2).report;
    const auto expected =
        serial(model, shape.micro_batches, RunMode::Evaluate, *set.source, 2).report;
    EXPECT_EQ(found.samples, 2 * kMicroBatchSize * shape.micro_batches);
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_EQ(found.accuracy, expected.accuracy);
    EXPECT_EQ(found.perplexity, expected.perplexity);
    ASSERT_TRUE(found.loss.has_value());
    EXPECT_EQ(found.accuracy.has_value(), model.loss == LossKind::SoftmaxCrossEntropy);
    EXPECT_EQ(found.perplexity.has_value(), model.sequence > 1);
  }
}

TEST_P(Forwards, PredictAsTheSerialForwardDoesInTheOrderOfTheSamples) {
  const Model model = small_model();
  if (model.layers.size() < static_cast<std::size_t>(forwards_of(GetParam()).stages)) GTEST_SKIP();
  const DataShape shape = shape_of(GetParam().micro_batches, RunMode::Predict);
  const auto set = exec::make_data_set(model, shape, {}, 2);
  const ForwardNumbers found = pipelined(model, GetParam(), RunMode::Predict, *set.source, 2);
  EXPECT_EQ(found.outputs.size(),
            static_cast<std::size_t>(2 * kMicroBatchSize * shape.micro_batches * 8));
  EXPECT_EQ(found.outputs,
            serial(model, shape.micro_batches, RunMode::Predict, *set.source, 2).outputs);
  EXPECT_FALSE(found.report.loss.has_value());
}

INSTANTIATE_TEST_SUITE_P(Matrix, Forwards, testing::ValuesIn(forward_cases()),
                         [](const auto& one) { return name_of(one.param); });

TEST(ForwardOnly, ADataSetThatDoesNotFillItsLastStepCountsEachSampleOnce) {
  const Model model = text_model();
  std::string text(static_cast<std::size_t>(model.sequence) * 29 + 1, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
  const std::string file = testing::TempDir() + "forward_only_text";
  write_file(file, text);
  std::optional<double> loss;
  for (const int micro_batches : {1, 4, 5, 29}) {  // 29 samples in micro-batches of 3
    const DataShape shape = shape_of(micro_batches, RunMode::Evaluate);
    const auto set = exec::make_data_set(model, shape, {file, "", ""}, 1);
    EXPECT_EQ(set.samples, 29);
    const int steps = static_cast<int>(set.steps(shape));
    EXPECT_EQ(steps, (29 + 3 * micro_batches - 1) / (3 * micro_batches));
    const ForwardNumbers found = pipelined(model, {"1f1b", 2, micro_batches, 1, "torch"},
                                           RunMode::Evaluate, *set.source, steps);
    EXPECT_EQ(found.report.samples, 29);
    if (!loss) loss = found.report.loss;
    EXPECT_EQ(found.report.loss, loss) << micro_batches << " micro-batches";
  }
}

TEST(ForwardOnly, ActivationsAreFreedWhenTheyHaveServed) {
  const Model model = text_model();
  const auto peak = [&](int micro_batches, bool trains) {
    const DataShape shape = shape_of(micro_batches, RunMode::Evaluate);
    const auto set =
        exec::make_data_set(model, shape, {PIPEWRIGHT_SOURCE_DIR "/LICENSE", "", ""}, 1);
    exec::cpu::Stage stage(model, 0, static_cast<int>(model.layers.size()), kMicroBatchSize,
                           micro_batches, kSeed);
    if (!trains) stage.forward_only(RunMode::Evaluate);
    for (int m = 0; m < micro_batches; ++m) {
      stage.set_batch(m, set.source->micro_batch(0, m));
      stage.forward(m, {});
      if (trains) continue;
      EXPECT_EQ(stage.live_activation_bytes(), 0) << "m" << m;
    }
    return stage.peak_activation_bytes();
  };
  const std::int64_t one = peak(1, false);
  EXPECT_GT(one, 0);
  EXPECT_EQ(peak(8, false), one);
  EXPECT_LT(one, peak(1, true));
  EXPECT_LT(4 * one, peak(8, true));
}

TEST(ForwardOnly, NoGradientsAndNoMomentsAreHeld) {
  const Model model = small_model();
  exec::cpu::Stage stage(model, 0, 8, 1, 1, kSeed);
  stage.forward_only(RunMode::Predict);
  for (const auto& view : stage.parameters()) EXPECT_TRUE(view.gradient.empty()) << view.name;
  for (const auto& view : stage.state()) EXPECT_EQ(view.slot, exec::kValueSlot);
}

TEST(ForwardOnly, ATrainingRefusesAnOrderWithoutABackward) {
  const Program program = forwards_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training);
    FAIL() << "it trained";
  } catch (const InputError& error) {
    EXPECT_NE(error.message().find("forward-only"), std::string::npos) << error.what();
  }
}

TEST(Outcomes, KnownAnswers) {
  // Rows of three logits: the label's is the largest in the first and the third.
  const std::vector<float> logits = {0, 0, 2, 1, 0, 0, 5, 5, 5};
  const std::vector<std::int32_t> labels = {2, 1, 0};
  const auto rows = exec::outcomes_of_rows(3, 3, logits.data(), labels);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_TRUE(rows[0].is_label);
  EXPECT_FALSE(rows[1].is_label);
  EXPECT_TRUE(rows[2].is_label);  // of equal outputs the first is taken
  EXPECT_EQ(rows[1].largest, 1);
  EXPECT_EQ(rows[2].row, 2);
  EXPECT_FALSE(exec::outcomes_of_rows(3, 3, logits.data(), {})[0].is_label);
}

/// One linear layer, whose weights are set: the losses can be worked out by hand.
TEST(Outcomes, LossesAreSumsOverTheSamplesThatCount) {
  for (const LossKind loss : {LossKind::SoftmaxCrossEntropy, LossKind::Mse}) {
    Model model;
    model.loss = loss;
    model.layers = {linear_layer("only", 1, 3)};
    exec::cpu::Stage stage(model, 0, 1, 3, 1, kSeed);
    stage.forward_only(RunMode::Evaluate);
    for (const exec::StateView& view : stage.state()) {
      const std::vector<float> values = view.values.size() == 3 && view.parameter.ends_with("bias")
                                            ? std::vector<float>{0, 0, 1}
                                            : std::vector<float>{1, 0, 0};
      std::copy(values.begin(), values.end(), view.values.begin());
    }
    // Outputs {0, 0, 1}, {1, 0, 1} and {2, 0, 1}, of which two count.
    const auto outcome_of = [&](int counted) {
      exec::MicroBatch batch{.tokens = {},
                             .inputs = {0, 1, 2},
                             .labels = {},
                             .targets = {},
                             .counted_samples = counted};
      if (loss == LossKind::Mse)
        batch.targets = {0, 0, 1, 1, 0, 3, 0, 0, 0};
      else
        batch.labels = {2, 0, 1};
      stage.set_batch(0, batch);
      stage.forward(0, {});
      return stage.take_outcome(0);
    };
    const double e = std::exp(1.0);
    const auto two = outcome_of(2), all = outcome_of(-1);
    EXPECT_EQ(two.rows.size(), 2U);
    if (loss == LossKind::Mse) {
      EXPECT_EQ(two.loss, 4);
      EXPECT_EQ(two.terms, 6);
      EXPECT_EQ(all.loss, 9);
    } else {
      EXPECT_NEAR(two.loss, std::log((2 + e) / e) + std::log((2 * e + 1) / e), 1e-6);
      EXPECT_EQ(two.terms, 2);
      EXPECT_NEAR(all.loss - two.loss, std::log(1 + e + e * e), 1e-6);
    }
    EXPECT_EQ(outcome_of(0).terms, 0);
    EXPECT_EQ(outcome_of(0).loss, 0);
  }
}

}  // namespace forward_only_test
}  // namespace pipewright::tests
