// Evaluations and predictions by ranks that divide layers: in exact numerics losses, metrics and
// outputs are those of the serial forward bit for bit, whatever the schedule and the division.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/parity/divided/divided_forwards.hpp"

namespace pipewright::tests {
namespace divided_evaluation_test {

using exec::Numerics;
using exec::RunMode;
using planner::Schedule;

/// The numbers of the ranks, and of the serial forward.
struct Both {
  ForwardNumbers divided, serial;
};

Both run(const Order& pipeline, const Model& model, const Layout& layout, RunMode mode,
         Numerics numerics, const char* policy = "torch") {
  const Program program = divided(pipeline, model, layout, policy, numerics, mode);
  ForwardSetting setting(program, model, numerics, layout, mode);
  const auto& training = setting.training;
  Both both;
  setting.training.outputs = into(both.divided);
  const auto result =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), training, {.steps = kForwardSteps});
  EXPECT_TRUE(result.finished());
  both.divided.report = result.evaluation.value_or(exec::EvaluationReport{});
  both.serial = serial_forwards(training, kForwardSteps);
  EXPECT_EQ(both.divided.report.samples, setting.set.samples);
  return both;
}

void expect_serial_numbers(const Order& pipeline, const Model& model, const Layout& layout,
                           const char* policy = "torch") {
  const Both found = run(pipeline, model, layout, RunMode::Evaluate, Numerics::Exact, policy);
  expect_equal(found.divided, found.serial);
  ASSERT_TRUE(found.divided.report.loss && found.divided.report.accuracy);
  const Both outputs = run(pipeline, model, layout, RunMode::Predict, Numerics::Exact, policy);
  expect_equal(outputs.divided, outputs.serial);
  EXPECT_FALSE(outputs.divided.outputs.empty());
}

class DividedEvaluation : public testing::TestWithParam<const Schedule*> {};

TEST_P(DividedEvaluation, HasTheSerialForwardsNumbers) {
  const char* policy = GetParam()->policy.empty() ? "torch" : GetParam()->policy.data();
  const int m = micro_batches_for(*GetParam(), 2);
  if (m == 0) GTEST_SKIP();
  const Order order = planner::make_order(GetParam()->name, {2, m, GetParam()->default_chunks, {}});
  expect_serial_numbers(order, with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}),
                        {.tensor = 2, .rows = true, .context = 2}, policy);
}

INSTANTIATE_TEST_SUITE_P(Registry, DividedEvaluation, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

const Order& by_1f1b() {
  static const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  return order;
}

TEST(DividedEvaluations, OfLayersHaveTheSerialForwardsNumbers) {
  for (const Model& model : {divisible_model(), divisible_llama(), divisible_deepseek(),
                             divisible_tied(), divisible_model({{"vocabulary", 258}})}) {
    for (const int tensor : {2, 4}) {
      SCOPED_TRACE(std::to_string(tensor) + " ranks a stage");
      expect_serial_numbers(by_1f1b(), model, {.tensor = tensor});
    }
    expect_serial_numbers(by_1f1b(), model, {.replicas = 2});
  }
}

TEST(DividedEvaluations, OfRowsAndSequencesHaveTheSerialForwardsNumbers) {
  const Json llama{{"style", "llama"}, {"kv_heads", 4}};
  for (const Model& model : {with_eight_tokens(Json::object()), with_eight_tokens(llama),
                             with_eight_tokens({{"vocabulary", 258}})}) {
    for (const Layout& layout :
         {Layout{.tensor = 4, .rows = true}, Layout{.tensor = 1, .context = 2},
          Layout{.tensor = 1, .context = 4}, Layout{.tensor = 2, .replicas = 2, .context = 2},
          Layout{.tensor = 1, .context = 2, .ring = true},
          Layout{.tensor = 2, .rows = true, .context = 2, .ring = true}})
      expect_serial_numbers(by_1f1b(), model, layout);
  }
}

/// Each rank that has experts of its own has micro-batches of its own.
TEST(DividedEvaluations, OfExpertsHaveTheSerialForwardsNumbers) {
  const Model mixtral = with_eight_tokens({{"style", "llama"},
                                           {"kv_heads", 4},
                                           {"experts", 4},
                                           {"top_k", 2},
                                           {"shared_ffn", 8},
                                           {"capacity_factor", 1.25}});
  for (const Layout& layout :
       {Layout{.tensor = 1, .experts = 2}, Layout{.tensor = 1, .experts = 4},
        Layout{.tensor = 2, .experts = 2}, Layout{.tensor = 1, .replicas = 2, .experts = 2},
        Layout{.tensor = 2, .experts = 2, .rows = true, .context = 2},
        Layout{.tensor = 2, .replicas = 2, .rows = true, .fold = ExpertFold::Tensor}})
    expect_serial_numbers(by_1f1b(), mixtral, layout);
}

TEST(DividedEvaluations, InFastNumericsAreNearTheSerialForward) {
  const Layout layout{.tensor = 2, .rows = true, .context = 2};
  const Model model = with_eight_tokens(Json::object());
  const Both found = run(by_1f1b(), model, layout, RunMode::Evaluate, Numerics::Fast);
  ASSERT_TRUE(found.divided.report.loss && found.serial.report.loss);
  EXPECT_NEAR(*found.divided.report.loss, *found.serial.report.loss, 1e-6);
  EXPECT_EQ(found.divided.report.rows, found.serial.report.rows);
  const Both outputs = run(by_1f1b(), model, layout, RunMode::Predict, Numerics::Fast);
  ASSERT_EQ(outputs.divided.outputs.size(), outputs.serial.outputs.size());
  for (std::size_t i = 0; i < outputs.serial.outputs.size(); ++i)
    ASSERT_NEAR(outputs.divided.outputs[i], outputs.serial.outputs[i], 1e-5) << i;
}

/// Four rows of eight outputs in two parts.
TEST(PartsOfOutcomes, OfEqualOutputsTheFirstCountsAndAPartThatIsNotFiniteSpoilsItsRow) {
  Model model = small_model();
  model.loss = LossKind::SoftmaxCrossEntropy;
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<float> left = {1, 3, 0, 0,            //
                                   1, 5, 0, 0,            //
                                   1, 5, 0, 0,            //
                                   0, 0, 0, -kInfinite};  //
  const std::vector<float> right = {0, 3, 0, 2,           //
                                    0, 0, 6, 0,           //
                                    0, 0, 0, 0,           //
                                    9, 0, 0, 0};
  const auto outcome = [](int first, const std::vector<float>& outputs,
                          const std::vector<std::int32_t>& labels) {
    return exec::ForwardOutcome{.loss = 2,
                                .terms = 4,
                                .first_column = first,
                                .rows = exec::outcomes_of_rows(4, 4, outputs.data(), labels),
                                .outputs = outputs};
  };
  std::vector<float> outputs;
  exec::Evaluation evaluation(model, RunMode::Evaluate, 3, [&](std::span<const float> all) {
    outputs.assign(all.begin(), all.end());
  });
  // Labels 5, 6, 1 and 4: the first has an equal before it.
  evaluation.put(0, outcome(4, right, {1, 2, -3, 0}));
  evaluation.put(1, outcome(0, left, {5, 6, 1, 4}));
  evaluation.put(2, outcome(0, left, {5, 6, 1, 4}));  // a rank that has the same part
  evaluation.end_step();
  EXPECT_EQ(evaluation.report().rows, 4);
  EXPECT_EQ(evaluation.report().not_finite_rows, 1);
  EXPECT_EQ(evaluation.report().accuracy, 0.5);
  EXPECT_EQ(evaluation.report().loss, 0.5);
  ASSERT_EQ(outputs.size(), 32U);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(outputs[8 * r + j], left[4 * r + j]);
      EXPECT_EQ(outputs[8 * r + 4 + j], right[4 * r + j]);
    }
  }
}

}  // namespace divided_evaluation_test
}  // namespace pipewright::tests
