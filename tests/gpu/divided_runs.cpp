// Trainings of layers and sequences that ranks divide, with copies between ranks, on every table
// there is: a GPU, or the host's.
#include <gtest/gtest.h>

#include "exec/devices/cuda/run.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {
namespace divided_runs {

class CudaDividedRuns : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cudas_ = cudas_under_test(why);
    if (cudas_.empty()) GTEST_SKIP() << why;
  }
  void expect_serial_bits(const Order& order, const Model& model, const Layout& layout) {
    const Program program = divided(order, model, layout);
    DividedSetting setting(program, model, exec::Numerics::Exact, layout);
    exec::cuda::CudaTraining how{setting.training, exec::cuda::Precision::Exact, {}, {}};
    how.training.verified_steps = kSteps;
    const Outcome expected = serial(setting.training);
    for (const NamedCuda& cuda : cudas_) {
      SCOPED_TRACE(cuda.name);
      const auto run = exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000), how,
                                               {.steps = kSteps});
      ASSERT_TRUE(run.finished());
      ASSERT_TRUE(run.verify.has_value());
      EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
      EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
      EXPECT_EQ(run.steps.back().loss, expected.losses.back());
    }
  }

  std::vector<NamedCuda> cudas_;
};

TEST_F(CudaDividedRuns, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const char* style : {"gpt", "llama"}) {
    const Model model = with_eight_tokens({{"style", style}});
    for (const Layout& layout : {Layout{}, Layout{.rows = true}, Layout{.tensor = 1, .context = 2},
                                 Layout{.tensor = 1, .context = 2, .ring = true}})
      expect_serial_bits(order, model, layout);
  }
}

TEST_F(CudaDividedRuns, LatentAttentionHasTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model model = divisible_latent({{"sequence", 8}});
  for (const Layout& layout :
       {Layout{.tensor = 1}, Layout{}, Layout{.rows = true}, Layout{.tensor = 1, .context = 2}})
    expect_serial_bits(order, model, layout);
}

/// As --verify allows it; keys and values by way of the hosts, gathered or round the ring.
TEST_F(CudaDividedRuns, SequencesStayWithinRoundingOutsideOfExactNumerics) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const bool ring : {false, true}) {
    const Layout layout{.tensor = 1, .context = 2, .ring = ring};
    const Program program = divided(order, model, layout, "torch", exec::Numerics::Fast);
    DividedSetting setting(program, model, exec::Numerics::Fast, layout);
    for (const auto& [precision, most] : {std::pair{exec::cuda::Precision::Float32, 2e-6},
                                          {exec::cuda::Precision::Bfloat16, 3e-2}}) {
      exec::cuda::CudaTraining how{setting.training, precision, {}, {}};
      how.training.verified_steps = 1;
      for (const NamedCuda& cuda : cudas_) {
        SCOPED_TRACE(cuda.name);
        const auto run = exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000), how,
                                                 {.steps = 1});
        ASSERT_TRUE(run.finished());
        EXPECT_LE(run.verify->gradients.norm_rel, most) << run.verify->gradients.worst;
      }
    }
  }
}

TEST_F(CudaDividedRuns, ExpertsHaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model model = with_eight_tokens({{"style", "llama"},
                                         {"ffn", 12},
                                         {"experts", 4},
                                         {"top_k", 2},
                                         {"shared_ffn", 8},
                                         {"balance_loss", 0.05}});
  expect_serial_bits(order, model, {.tensor = 1, .experts = 2});
  expect_serial_bits(order, model, {.tensor = 2, .rows = true, .fold = ExpertFold::Tensor});
}

}  // namespace divided_runs
}  // namespace pipewright::tests
