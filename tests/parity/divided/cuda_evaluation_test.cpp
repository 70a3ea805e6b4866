// Evaluations and predictions by ranks that divide layers, sequences and experts, on the host's
// tables for GPUs: in exact numerics the serial forward's losses, metrics and outputs, whatever the
// order in which the GPUs' work is done; in other numerics within rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"
#include "tests/parity/divided/divided_forwards.hpp"
#include "tests/parity/divided/mixtures.hpp"

namespace pipewright::tests {
namespace cuda_evaluation_test {

using namespace cuda_divided;
using exec::RunMode;

/// The numbers of the ranks, and of the serial forward.
struct Both {
  ForwardNumbers found, serial;
};

Both run(Over over, HostOrder streams, const Model& model, const Layout& layout, RunMode mode,
         Precision precision) {
  const Numerics numerics = precision == Precision::Exact ? Numerics::Exact : Numerics::Fast;
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Program program = divided(order, model, layout, policies_of(over).front(), numerics, mode);
  ForwardSetting setting(program, model, numerics, layout, mode);
  Both both;
  setting.training.outputs = into(both.found);
  const CudaResult result =
      trained(over, streams, program, {setting.training, precision, {}, {}}, kForwardSteps);
  EXPECT_TRUE(result.finished());
  both.found.report = result.evaluation.value_or(exec::EvaluationReport{});
  both.serial = serial_forwards(setting.training, kForwardSteps);
  EXPECT_EQ(both.found.report.samples, setting.set.samples);
  return both;
}

void expect_serial_numbers(const Model& model, const Layout& layout) {
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    const Both evaluated =
        run(over, HostOrder::Shuffled, model, layout, RunMode::Evaluate, Precision::Exact);
    expect_equal(evaluated.found, evaluated.serial);
    ASSERT_TRUE(evaluated.found.report.loss && evaluated.found.report.accuracy);
    const Both predicted =
        run(over, HostOrder::Lazy, model, layout, RunMode::Predict, Precision::Exact);
    expect_equal(predicted.found, predicted.serial);
    EXPECT_FALSE(predicted.found.outputs.empty());
  }
}

/// 258 tokens four ranks do not divide: each has the whole head.
TEST(CudaEvaluation, OfDividedLayersHasTheSerialForwardsNumbers) {
  for (const Model& model : {divisible_model(), divisible_llama(), divisible_latent(),
                             divisible_tied(), divisible_model({{"vocabulary", 258}})}) {
    expect_serial_numbers(model, {.tensor = 4});
  }
  expect_serial_numbers(divisible_llama(), {.replicas = 2});
}

TEST(CudaEvaluation, OfDividedRowsAndSequencesHasTheSerialForwardsNumbers) {
  const Model llama = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const Layout& layout :
       {Layout{.tensor = 1, .context = 2}, Layout{.tensor = 1, .replicas = 2, .context = 2},
        Layout{.tensor = 1, .context = 4, .ring = true}, Layout{.rows = true},
        Layout{.rows = true, .context = 2}})
    expect_serial_numbers(llama, layout);
  expect_serial_numbers(divisible_latent({{"sequence", 8}}), {.rows = true, .context = 2});
  expect_serial_numbers(with_eight_tokens({{"vocabulary", 258}}), {.tensor = 4, .rows = true});
}

/// Each rank that has experts of its own has micro-batches of its own.
TEST(CudaEvaluation, OfDividedExpertsHasTheSerialForwardsNumbers) {
  for (const Layout& layout : {Layout{.tensor = 1, .experts = 2}, Layout{.tensor = 2, .experts = 2},
                               Layout{.tensor = 1, .replicas = 2, .experts = 2},
                               Layout{.tensor = 1, .experts = 2, .context = 2},
                               Layout{.rows = true, .fold = ExpertFold::Tensor}}) {
    expect_serial_numbers(dropping(), layout);
  }
  expect_serial_numbers(divisible_deepseek({{"sequence", 8}}), {.tensor = 2, .experts = 2});
}

/// Of the whole of what is expected.
double distance_of(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double apart = 0, whole = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const auto f = static_cast<double>(found[i]), e = static_cast<double>(expected[i]);
    apart += (f - e) * (f - e);
    whole += e * e;
  }
  return std::sqrt(apart / whole);
}

TEST(CudaEvaluation, InOtherNumericsIsNearTheSerialForward) {
  for (const auto& [precision, most] :
       {std::pair{Precision::Float32, 1e-5}, {Precision::Bfloat16, 3e-2}}) {
    for (const Layout& layout : {Layout{}, Layout{.rows = true, .context = 2}}) {
      for (const Over over : {Over::Copies, Over::Nccl}) {
        const Model model = with_eight_tokens(Json::object());
        const Both evaluated =
            run(over, HostOrder::Lazy, model, layout, RunMode::Evaluate, precision);
        ASSERT_TRUE(evaluated.found.report.loss && evaluated.serial.report.loss);
        EXPECT_NEAR(*evaluated.found.report.loss, *evaluated.serial.report.loss, most);
        EXPECT_EQ(evaluated.found.report.rows, evaluated.serial.report.rows);
        const Both predicted =
            run(over, HostOrder::Lazy, model, layout, RunMode::Predict, precision);
        EXPECT_LE(distance_of(predicted.found.outputs, predicted.serial.outputs), most);
      }
    }
  }
}

}  // namespace cuda_evaluation_test
}  // namespace pipewright::tests
