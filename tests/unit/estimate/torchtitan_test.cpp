// What torchtitan does with a block: checkpoints by operator, gathered weights, unfused operators.
#include <gtest/gtest.h>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/stage_estimate.hpp"
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

constexpr double kBlock = 218112000;  // weights of a block of the 8B

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

TEST(Torchtitan, GatheredWeightsAreCopied) {
  const ParallelSetup setup = fully_sharded(LayerRecompute::Whole);
  FrameworkTraits in_place = torchtitan();
  in_place.gather_bytes = 0;
  const Architecture model = architecture_preset("llama3-8b");
  const auto traffic = [&](const FrameworkTraits& framework) {
    return block_work(model, framework, setup, kDenseBlock).forward_traffic;
  };
  EXPECT_NEAR(traffic(torchtitan()) - traffic(in_place), 4 * kBlock, 4 * 1e5);
}

double passing(const Architecture& model, const ParallelSetup& setup) {
  return passing_bytes(model, torchtitan(), setup, range_of_rank(model, setup, 0));
}

/// PyTorch's tracker says the same (tests/peers/fsdp_peaks.py).
TEST(Torchtitan, AtTheLossTheLastBlockAndTheTablesAreGathered) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup = fully_sharded(LayerRecompute::None);
  const double tables = 2 * 128256.0 * 4096;
  // All tables have arrived on another stream, which is more than two blocks.
  EXPECT_NEAR(passing(model, setup), 2 * tables + 2 * (kBlock + tables), 2 * 1e5);
}

TEST(Torchtitan, InTheSecondBlocksBackwardTheFirstOnesGradientsAreScattered) {
  Architecture model = architecture_preset("llama3-8b");
  model.vocabulary = 1024;
  const ParallelSetup setup = fully_sharded(LayerRecompute::Whole);
  const double table = 1024.0 * 4096, rows = 2.0 * 8192;
  const double again = saved_bytes(model, torchtitan(), setup, kDenseBlock, LayerRecompute::None);
  const double gradients = 2 * (rows * 2 * 14336 + 14336.0 * 4096);
  const double gone = 2 * rows * 4096 + head_kept_bytes(model, torchtitan(), setup);
  EXPECT_NEAR(passing(model, setup),
              4 * kBlock + again + gradients + (2 + 4) * kBlock + 4 * table + 2 * table - gone,
              10 * 1e5);
}

/// What DTensor holds besides is not known.
TEST(Torchtitan, UnderTensorParallelismNothingIsGone) {
  const Architecture model = architecture_preset("llama3-8b");
  ParallelSetup setup = fully_sharded(LayerRecompute::Whole);
  setup.tensor = 2;
  setup.data = 4;
  const double with_head = passing(model, setup);
  LayerRange range = range_of_rank(model, setup, 0);
  range.head = false;
  // The head's own table arrives, is gathered, and has a gradient.
  EXPECT_DOUBLE_EQ(with_head - passing_bytes(model, torchtitan(), setup, range),
                   (2 + 2 + 2) * 128256.0 * 4096 / 2);
}

TEST(Torchtitan, WithoutCompilationOperatorsReadAndWriteMore) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup = fully_sharded(LayerRecompute::None);
  const BlockWork fused = block_work(model, torchtitan(), setup, kDenseBlock),
                  apart = block_work(model, torchtitan_eager(), setup, kDenseBlock);
  const double rows = 2.0 * 8192, rotary = 16 * (4096 + 1024);
  // Two norms read and write 36 and 92 bytes a number in place of 4 and 6; the gradients of three
  // products' input, and of two products', are added up in passes of 6 bytes.
  EXPECT_DOUBLE_EQ(apart.forward_traffic - fused.forward_traffic,
                   rows * (2 * 32 * 4096 + rotary + 4 * 14336));
  EXPECT_DOUBLE_EQ(apart.backward_traffic - fused.backward_traffic,
                   rows * ((2 * 86 + 3 * 6) * 4096 + rotary + 8 * 14336));
}

/// PyTorch keeps as much (tests/peers/operator_traffic.py).
TEST(Torchtitan, WithoutCompilationNormsAndTheGateKeepMore) {
  Architecture model = architecture_preset("llama3-8b");
  model.key_value_heads = model.heads;
  const ParallelSetup setup = fully_sharded(LayerRecompute::None);
  const double rows = 2.0 * model.sequence;
  EXPECT_DOUBLE_EQ(saved_bytes(model, torchtitan_eager(), setup, kDenseBlock, LayerRecompute::None),
                   rows * (24.0 * model.hidden + 8.0 * model.ffn + 4.0 * model.heads));
}

TEST(Torchtitan, SequenceParallelRanksKeepWhatTheyGather) {
  const Architecture model = architecture_preset("llama3-8b");
  ParallelSetup setup = fully_sharded(LayerRecompute::None);
  setup.tensor = 8;
  setup.sequence_parallel = true;
  FrameworkTraits again = torchtitan();
  again.keeps_gathered = false;
  const auto kept = [&](const FrameworkTraits& framework) {
    return saved_bytes(model, framework, setup, kDenseBlock, LayerRecompute::None);
  };
  // The inputs of attention and of the feed-forward part, where an eighth is a rank's own; and the
  // head's.
  const double input = 2.0 * 2 * 8192 * 4096 * 7 / 8;
  EXPECT_DOUBLE_EQ(kept(torchtitan()) - kept(again), 2 * input);
  EXPECT_DOUBLE_EQ(
      head_kept_bytes(model, torchtitan(), setup) - head_kept_bytes(model, again, setup), input);
}

TEST(Torchtitan, WhatIsComputedAgainEndsBeforeTheLastProduct) {
  const Architecture model = architecture_preset("llama3-8b");
  const ParallelSetup setup = fully_sharded(LayerRecompute::Whole);
  const BlockWork work = block_work(model, torchtitan(), setup, kDenseBlock);
  const DeviceRates device = device_rates("A100");
  EXPECT_DOUBLE_EQ(left_out_of_recompute(device, torchtitan(), work).sum(),
                   products_seconds(device, work, 3, 4).forward);
}

TEST(Torchtitan, StagesKeepABufferForEachMessageOfEachMicroBatch) {
  const Architecture model = architecture_preset("llama3-8b");
  ParallelSetup setup;
  setup.pipeline = 4;
  setup.chunks = 2;
  setup.micro_batches = 8;
  const double message = 2.0 * 8192 * 4096;
  const auto received = [&](const FrameworkTraits& framework) {
    std::vector<double> bytes;
    for (const RankBytes& rank : estimate_memory(model, framework, setup))
      bytes.push_back(rank.received);
    return bytes;
  };
  // Of a rank's two stages each has two neighbours, but for the first and the last.
  EXPECT_EQ(received(torchtitan()), (std::vector<double>{3 * 8 * message, 4 * 8 * message,
                                                         4 * 8 * message, 3 * 8 * message}));
  EXPECT_EQ(received(megatron_core()), std::vector<double>(4));
  // The same of a plan's stages.
  std::vector<StagePlan> stages;
  for (int s = 0; s < 8; ++s)
    stages.push_back({s == 0 ? 0 : 4 * s + 1, s == 7 ? 34 : 4 * s + 5, RankId(s % 4)});
  FrameworkTraits freed = torchtitan();
  freed.keeps_received = false;
  const Machine machine = nvlink_machine("H100", 400e9);
  const auto kept = estimated_stage_memory({model, torchtitan(), machine}, setup, stages),
             without = estimated_stage_memory({model, freed, machine}, setup, stages);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    EXPECT_NEAR(static_cast<double>((kept[s].constant - without[s].constant).value),
                (s == 0 || s == 7 ? 1 : 2) * 8 * message, 1);
  }
  setup.pipeline = setup.chunks = 1;
  EXPECT_EQ(received(torchtitan()), std::vector<double>(1));
}

}  // namespace torchtitan_test
}  // namespace pipewright::planner
