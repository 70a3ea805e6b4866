// Products of numbers of 8 and 4 bits (core/plan/framework.hpp, kProductFormats).
#include <gtest/gtest.h>

#include "planner/estimate/block_work.hpp"
#include "planner/estimate/step_parts.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::planner {
namespace product_formats_test {

/// Transformer Engine: H100's products of 8 bits are 1.78 times as fast, and what they read half
/// the bytes; results, attention's core and what is between products stay as they are.
TEST(Estimate, ProductsOf8Bits) {
  const DeviceRates h100 = device_rates("H100");
  const Matmul product{8192, 8192, 8192};
  Matmul in_8_bits = product;
  in_8_bits.bytes = 1;
  EXPECT_DOUBLE_EQ(matmul_seconds(h100, in_8_bits), matmul_seconds(h100, product) / 1.78);

  Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup;
  const FrameworkTraits plain = megatron_core(), fp8 = with_products(plain, "fp8");
  const double rows = model.sequence;
  EXPECT_DOUBLE_EQ(saved_bytes(model, plain, setup, kDenseBlock, LayerRecompute::None) -
                       saved_bytes(model, fp8, setup, kDenseBlock, LayerRecompute::None),
                   rows * (2 * model.hidden + model.hidden + model.ffn));
  const BlockWork before = block_work(model, plain, setup, kDenseBlock),
                  after = block_work(model, fp8, setup, kDenseBlock);
  // Converted: what leaves attention; gradients of its result, of queries, keys and values, of the
  // block's.
  const double keys = 2.0 * model.key_value_heads * model.head;
  EXPECT_DOUBLE_EQ(after.forward_traffic - before.forward_traffic, 4 * rows * model.hidden);
  EXPECT_DOUBLE_EQ(after.backward_traffic - before.backward_traffic,
                   4 * rows * (3 * model.hidden + keys));

  const Machine old = nvlink_machine("A100", 100e9);
  EXPECT_EQ(test::refusal([&] { require_products(old, fp8); }).message(),
            "A100 has no products of fp8; Hopper, Blackwell and CDNA 3 and 4 have");
}

/// A thirty-second more for the scales of blocks of 32; else as the 8 bits of whole tensors.
TEST(Estimate, ProductsOfBlocksOf8Bits) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup;
  const FrameworkTraits plain = megatron_core(), mxfp8 = with_products(plain, "mxfp8");
  constexpr double kNumber = 1 + 1.0 / 32;
  const double rows = model.sequence;
  EXPECT_DOUBLE_EQ(saved_bytes(model, plain, setup, kDenseBlock, LayerRecompute::None) -
                       saved_bytes(model, mxfp8, setup, kDenseBlock, LayerRecompute::None),
                   (2 - kNumber) * rows * (2 * model.hidden + model.hidden + model.ffn));
  const BlockWork before = block_work(model, plain, setup, kDenseBlock),
                  after = block_work(model, mxfp8, setup, kDenseBlock);
  EXPECT_DOUBLE_EQ(after.forward_traffic - before.forward_traffic,
                   (2 + 2 * kNumber) * rows * model.hidden);
  EXPECT_EQ(after.products[0].bytes, kNumber);
  EXPECT_DOUBLE_EQ(device_rates("B200").product_rate(kNumber),
                   device_rates("B200").product_rate(1));
  const Machine hopper = nvlink_machine("H100", 100e9);
  EXPECT_EQ(test::refusal([&] { require_products(hopper, mxfp8); }).message(),
            "H100 has no products of mxfp8; Blackwell and CDNA 4 have");
  EXPECT_NO_THROW(require_products(nvlink_machine("MI355X", 100e9), mxfp8));
}

/// A tensor is read whole for its scale before it is converted, so norms and activations cannot
/// write it; weights stay in 16 bits beside their copies in both layouts.
TEST(Estimate, ProductsOf4Bits) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup;
  const FrameworkTraits plain = megatron_core(), nvfp4 = with_products(plain, "nvfp4");
  constexpr double kNumber = 0.5 + 1.0 / 16, kConverted = 4 + 2 * kNumber;
  const BlockWork before = block_work(model, plain, setup, kDenseBlock),
                  after = block_work(model, nvfp4, setup, kDenseBlock);
  const double rows = model.sequence, keys = 2.0 * model.key_value_heads * model.head;
  EXPECT_DOUBLE_EQ(after.forward_traffic - before.forward_traffic,
                   kConverted * rows * (3 * model.hidden + model.ffn));
  EXPECT_DOUBLE_EQ(after.backward_traffic - before.backward_traffic,
                   kConverted * rows * (3 * model.hidden + keys + 2 * model.ffn));
  const LayerRange block{.blocks = blocks_of_kind(kDenseBlock, 1)};
  const double weights = block_parameters_of_rank(model, setup, kDenseBlock);
  EXPECT_DOUBLE_EQ(state_bytes(model, nvfp4, setup, block).sum() / weights,
                   2 + 2 * kNumber + plain.gradient_bytes + plain.state_bytes);
  EXPECT_EQ(with_products(nemo(), "nvfp4").state_bytes, nemo().state_bytes);
  EXPECT_DOUBLE_EQ(device_rates("B200").product_rate(kNumber),
                   4 * device_rates("B200").product_rate(2));
  EXPECT_DOUBLE_EQ(device_rates("GB300").product_rate(kNumber),
                   6 * device_rates("GB300").product_rate(2));
  for (const char* device : {"H100", "MI355X"}) {
    EXPECT_EQ(
        test::refusal([&] { require_products(nvlink_machine(device, 1e11), nvfp4); }).message(),
        std::string(device) + " has no products of nvfp4; Blackwell's devices have");
  }
}

}  // namespace product_formats_test
}  // namespace pipewright::planner
