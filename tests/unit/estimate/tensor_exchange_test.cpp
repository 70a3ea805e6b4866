// A ZeRO 3 that exchanges each tensor by itself, as DeepSpeed of 2021.
#include "planner/estimate/tensor_exchange.hpp"

#include <gtest/gtest.h>

#include "planner/estimate/gradient_exchange.hpp"

namespace pipewright::planner {
namespace tensor_exchange_test {

constexpr int kBlocks = 8, kReplicas = 16, kMicroBatches = 4;

Architecture gpt(int hidden = 1024) {
  return gpt_architecture("gpt", hidden, kBlocks, 16, 51200, 512);
}

LayerRange whole() {
  return {.blocks = blocks_of_kind(kDenseBlock, kBlocks), .embedding = true, .head = true};
}

ParallelSetup sharded(LayerRecompute recompute) {
  ParallelSetup setup;
  setup.data = kReplicas;
  setup.micro_batches = kMicroBatches;
  setup.zero = 3;
  setup.recompute.of_all = recompute;
  return setup;
}

double seconds_of(const FrameworkTraits& framework, const Machine& machine,
                  const ParallelSetup& setup) {
  return reduction_seconds(framework, machine, setup, machine.nodes.front(),
                           exchanged_weights(gpt(), framework, setup, whole()));
}

TEST(TensorExchange, AMatrixIsGatheredAndEveryTensorScattered) {
  const RangeWeights weights =
      weights_by_tensor(gpt(), megatron_deepspeed(), sharded(LayerRecompute::None), whole());
  // Four matrices a block, words and positions; four biases and two norms of two vectors a block,
  // and the last norm.
  EXPECT_EQ(weights.messages, 4 * kBlocks + 2);
  EXPECT_EQ(weights.trained.messages, (4 + 4 + 4) * kBlocks + 2 + 2);
  EXPECT_EQ(weights.again.all, 0);
  EXPECT_EQ(weights.all, weights_of(gpt(), {}, whole()).all);
}

TEST(TensorExchange, WhatIsUsedAgainFarOffIsGatheredAgain) {
  const auto again = [](int hidden) {
    return weights_by_tensor(gpt(hidden), megatron_deepspeed(), sharded(LayerRecompute::Whole),
                             whole())
        .again;
  };
  // Behind the four matrices of a block come twice 9, 8, 4 and 0 times hidden² numbers.
  EXPECT_EQ(again(4096).messages, 0);             // 0.3e9 at most
  EXPECT_EQ(again(8192).messages, 2 * kBlocks);   // 1.2e9, 1.07e9, 0.5e9
  EXPECT_EQ(again(12288).messages, 3 * kBlocks);  // 2.7e9, 2.4e9, 1.2e9
  EXPECT_DOUBLE_EQ(again(12288).all, kBlocks * (3 + 1 + 4) * 12288.0 * 12288.0);
}

TEST(TensorExchange, ExpertsHaveTensorsOfTheirOwn) {
  Architecture model = gpt();
  model.experts = {.count = 8, .chosen = 2, .ffn = 4096};
  LayerRange range = whole();
  range.blocks = blocks_of_kind(model.kind_of(0), kBlocks);
  const RangeWeights weights =
      weights_by_tensor(model, megatron_deepspeed(), sharded(LayerRecompute::None), range);
  EXPECT_EQ(weights.messages_of_experts, 2 * 8 * kBlocks);
  EXPECT_EQ(weights.messages, 3 * kBlocks + 2);  // attention's two, the router
}

TEST(TensorExchange, StartAndPartsOfEachAreAllThatTakesTimeWhereBytesTakeNone) {
  Machine machine = nvlink_machine("A100", 1e30);
  machine.nodes.front().inside_bytes_per_second = 1e30;
  const NodeRates& node = machine.nodes.front();
  const FrameworkTraits framework = megatron_deepspeed();
  const ParallelSetup setup = sharded(LayerRecompute::None);
  const int gathers = 4 * kBlocks + 2, scatters = 12 * kBlocks + 4;
  const double parts = kReplicas * framework.part_seconds,
               message = ring_start_seconds(8, {kReplicas, 1}) + parts;
  const double all = seconds_of(framework, machine, setup);
  EXPECT_NEAR(
      all, kMicroBatches * (2 * gathers + scatters) * message + (scatters - gathers) * parts, 1e-9);
  // The device waits for each.
  const LayerSeconds layers = layer_seconds(gpt(), framework, machine, setup, node);
  const RangeWeights weights = exchanged_weights(gpt(), framework, setup, whole());
  EXPECT_EQ(
      exposed_exchange_seconds(gpt(), framework, machine, setup, node, whole(), weights, layers),
      all);
}

TEST(TensorExchange, BelowZero3ReplicasExchangeAsTheyDidBefore) {
  const Machine machine = nvlink_machine("A100", 100e9);
  FrameworkTraits by_layer = megatron_deepspeed();
  by_layer.gathers_tensors = false;
  for (const int zero : {0, 1, 2}) {
    ParallelSetup setup = sharded(LayerRecompute::Whole);
    setup.zero = zero;
    EXPECT_EQ(seconds_of(megatron_deepspeed(), machine, setup),
              seconds_of(by_layer, machine, setup));
  }
}

TEST(TensorExchange, ADeviceHoldsTheWidestTensorAndItsParts) {
  const FrameworkTraits framework = megatron_deepspeed();
  EXPECT_EQ(widest_tensor(gpt(), framework, {}, kDenseBlock), 4.0 * 1024 * 1024);
  FrameworkTraits in_place = framework;
  in_place.gather_bytes = 0;
  LayerRange blocks = whole();
  blocks.embedding = blocks.head = false;
  const ParallelSetup setup = sharded(LayerRecompute::None);
  EXPECT_EQ(passing_bytes(gpt(), framework, setup, blocks) -
                passing_bytes(gpt(), in_place, setup, blocks),
            4 * 4.0 * 1024 * 1024);
  EXPECT_EQ(passing_bytes(gpt(), framework, setup, whole()) -
                passing_bytes(gpt(), in_place, setup, whole()),
            4 * 51200.0 * 1024);
}

}  // namespace tensor_exchange_test
}  // namespace pipewright::planner
