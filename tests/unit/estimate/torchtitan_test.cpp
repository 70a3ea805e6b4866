// What torchtitan does with a block: checkpoints by operator, gathered weights, unfused operators.
#include <gtest/gtest.h>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/step_estimate.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
namespace torchtitan_test {

ParallelSetup fully_sharded(LayerRecompute recompute) {
  ParallelSetup setup;
  setup.data = 8;
  setup.zero = 3;
  setup.micro_batch_size = 2;
  setup.recompute.of_all = recompute;
  return setup;
}

double peak(const FrameworkTraits& framework, const ParallelSetup& setup) {
  return estimate_memory(architecture_preset("llama3-8b"), framework, setup).front().peak();
}

TEST(Torchtitan, SelectedOperatorsAreKeysTheProjectionAndHalfOfTheGatedProduct) {
  const Architecture model = architecture_preset("llama3-8b");
  const BlockWork work =
      block_work(model, torchtitan(), fully_sharded(LayerRecompute::Attention), kDenseBlock);
  const DeviceRates device = device_rates("A100");
  const OperatorsAgain again = operators_again(device, model, work);
  const auto forward = [&](int product) {
    return products_seconds(device, work, product, product + 1).forward;
  };
  EXPECT_DOUBLE_EQ(again.entering,
                   forward(0) * 8 / 48);  // 32 heads of queries, 8 of keys, 8 of values
  EXPECT_DOUBLE_EQ(again.after_mixer, forward(1));
  EXPECT_DOUBLE_EQ(again.feed_forward, forward(2) / 2);
}

TEST(Torchtitan, SelectedOperatorsKeepWhatEachSecondProductGives) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup = fully_sharded(LayerRecompute::Attention);
  // The input, queries, values, attention's result with a number for each head, the gate, the last.
  const double numbers = 4096 + 4096 + 1024 + 4096 + 14336 + 4096;
  EXPECT_EQ(saved_bytes(model, torchtitan(), setup, kDenseBlock, LayerRecompute::Attention),
            2.0 * 8192 * (2 * numbers + 4 * 32));
}

TEST(Torchtitan, SelectiveIsBetweenNoneAndWhole) {
  const Architecture model = architecture_preset("llama3-8b");
  const Machine machine = nvlink_machine("H200", 400e9);
  double seconds = 0, bytes = 1e30;
  for (const auto recompute :
       {LayerRecompute::None, LayerRecompute::Attention, LayerRecompute::Whole}) {
    const ParallelSetup setup = fully_sharded(recompute);
    const double step = estimate_step(model, torchtitan(), machine, setup).step;
    EXPECT_GT(step, seconds);
    EXPECT_LT(peak(torchtitan(), setup), bytes);
    seconds = step;
    bytes = peak(torchtitan(), setup);
  }
}

TEST(Torchtitan, GatheredWeightsAreHeldAndCopied) {
  const ParallelSetup setup = fully_sharded(LayerRecompute::Whole);
  FrameworkTraits in_place = torchtitan();
  in_place.gather_bytes = 0;
  // Two blocks and a table in 16 bits, gradients of one and of the table in 32.
  const double block = 218112000, table = 128256.0 * 4096;
  EXPECT_NEAR(peak(torchtitan(), setup) - peak(in_place, setup), 8 * block + 6 * table, 8 * 1e5);
  const Architecture model = architecture_preset("llama3-8b");
  const auto traffic = [&](const FrameworkTraits& framework) {
    return block_work(model, framework, setup, kDenseBlock).forward_traffic;
  };
  EXPECT_NEAR(traffic(torchtitan()) - traffic(in_place), 4 * block, 4 * 1e5);
}

TEST(Torchtitan, WithoutCompilationOperatorsReadAndWriteMore) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup = fully_sharded(LayerRecompute::None);
  const BlockWork fused = block_work(model, torchtitan(), setup, kDenseBlock),
                  apart = block_work(model, torchtitan_eager(), setup, kDenseBlock);
  const double rows = 2.0 * 8192, rotary = 16 * (4096 + 1024);
  EXPECT_DOUBLE_EQ(apart.forward_traffic - fused.forward_traffic, rows * (rotary + 4 * 14336));
  EXPECT_DOUBLE_EQ(apart.backward_traffic - fused.backward_traffic, rows * (rotary + 8 * 14336));
}

}  // namespace torchtitan_test
}  // namespace pipewright::planner
