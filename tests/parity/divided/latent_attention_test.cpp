// DeepSeek's layers divided among ranks: latent attention by heads, experts by number, both at
// once; in exact numerics losses, gradients and weights are those of the serial run bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parity/divided/divided_outcome.hpp"

namespace pipewright::tests {
namespace latent_attention_test {

using planner::Schedule;

class LatentAttention : public testing::TestWithParam<const Schedule*> {};

TEST_P(LatentAttention, DividedByHeadsHasTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), divisible_deepseek(),
                           [](int ranks) { return Layout{.tensor = ranks == 2 ? 4 : 2}; });
}

TEST_P(LatentAttention, BesideDividedExpertsHasTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), divisible_deepseek(), [](int ranks) {
    return Layout{.tensor = ranks == 2 ? 2 : 1, .experts = 2};
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, LatentAttention, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(LatentAttentionLayouts, HaveTheSerialRunsBits) {
  const Order one = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order two = planner::make_order("1f1b", {2, 4, 1, {}});
  expect_serial_bits(one, divisible_deepseek(), {.tensor = 2, .experts = 4});
  for (const int tensor : {2, 4}) expect_serial_bits(two, divisible_latent(), {.tensor = tensor});
  for (const int zero : {1, 2, 3})
    expect_serial_bits(two, divisible_deepseek(), {.replicas = 2, .sharded = true, .zero = zero});
  expect_serial_bits(two, divisible_deepseek({{"tied_head", true}}), {.tensor = 1, .experts = 2});
}

TEST(LatentAttentionLayouts, RecomputedLayersAskForTheirSumsAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  const Model model = divisible_deepseek();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    expect_serial_bits(
        order, model,
        {.recompute = std::vector<LayerRecompute>(model.layers.size(), what), .experts = 2});
  }
}

TEST(LatentAttentionLayouts, FastNumericsAreNearTheSerialRun) {
  expect_near_serial_run(divisible_latent(), {.tensor = 4});
}

}  // namespace latent_attention_test
}  // namespace pipewright::tests
