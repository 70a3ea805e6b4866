#include "planner/estimate/layer_seconds.hpp"
#include "planner/estimate/step_estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/estimate/step_parts.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::planner {
namespace estimate_test {

DeviceRates plain_device() {
  // Ten multiprocessors, tiles of 128, everything at its peak.
  return {"test", 1e12, 1e15, 1e12, 10, 128, 128, false, 1, 1, 1};
}

Architecture gpt() { return gpt_architecture("gpt", 1024, 8, 16, 51200, 512); }

ParallelSetup setup_of(int tensor, int data, int pipeline, int micro_batches) {
  ParallelSetup setup;
  setup.tensor = tensor;
  setup.data = data;
  setup.pipeline = pipeline;
  setup.micro_batches = micro_batches;
  return setup;
}

TEST(DeviceRates, BlackwellsMultiplyAsFarAsTheirPowerAllows) {
  // B200: 0.48 of 2,250e12 with 1,000 W. The peaks of the others do not matter, their watts do.
  const double b200 = device_rates("B200").product_rate(2);
  EXPECT_NEAR(b200, 1080e12, 1e6);
  EXPECT_NEAR(device_rates("GB300").product_rate(2), 1.4 * b200, 1e6);
  EXPECT_NEAR(device_rates("GB200").product_rate(2), 1.2 * b200, 1e6);
  EXPECT_NEAR(device_rates("B300").product_rate(2), 1.1 * b200, 1e6);
  EXPECT_NEAR(device_rates("GB300").product_rate(1), 2.8 * b200, 1e6);
  // T4 and V100 are of one process: 70 W of 300 W for 65e12 of 125e12 operations a second.
  EXPECT_NEAR(device_rates("T4").joules_of_peak() / device_rates("V100").joules_of_peak(), 0.4487,
              1e-4);
}

TEST(AttentionCore, IsAsFastAsTheDevicesKernelsAndTheFrameworks) {
  const ParallelSetup setup = setup_of(1, 1, 1, 1);
  BlockWork work = block_work(gpt(), megatron_core(), setup, kDenseBlock);
  const auto forward = [&](const char* device) {
    const DeviceRates rates = device_rates(device);
    return work.flash_flops / rates.product_rate(2) / mixer_core_seconds(rates, work).forward;
  };
  EXPECT_NEAR(forward("A100"), 0.75, 1e-9);
  EXPECT_NEAR(forward("H100"), 1, 1e-9);  // FlashAttention-3 and cuDNN
  EXPECT_NEAR(forward("B200"), 1, 1e-9);  // cuDNN
  // FlashAttention-1 in Triton, by what FlashAttention-2 is on each.
  work.flash_rate = kTritonAttention;
  EXPECT_NEAR(forward("A100"), 0.75 / 1.8, 1e-9);
  EXPECT_NEAR(forward("H100"), 0.58 / 1.8, 1e-9);
}

TEST(AttentionCore, OfHeadsOfOddWidthRunsOutsideTheTensorCores) {
  EXPECT_EQ(slower_unaligned_batch(device_rates("A100"), 112), 1);
  EXPECT_EQ(slower_unaligned_batch(device_rates("A100"), 108), 16);  // 312 against 19.5
  EXPECT_NEAR(slower_unaligned_batch(device_rates("V100"), 150), 7.96, 0.01);
  EXPECT_EQ(slower_unaligned_batch(plain_device(), 108), 3);  // not told: as of one product
}

TEST(MatmulSeconds, CountsWholeWavesOfTiles) {
  const DeviceRates device = plain_device();
  const double depth = 1024, start = kMatmulStartDepth;
  const double wave = 2 * 10 * 128.0 * 128 * (depth + start) / 1e12;
  // Ten tiles are one wave; one row more makes twenty, and two waves.
  EXPECT_DOUBLE_EQ(matmul_seconds(device, {128, 1280, depth}), wave);
  EXPECT_DOUBLE_EQ(matmul_seconds(device, {129, 1280, depth}), 2 * wave);
  EXPECT_DOUBLE_EQ(matmul_seconds(device, {128, 128, depth, 10}), wave);
  EXPECT_EQ(matmul_seconds(device, {0, 128, depth}), 0);
}

TEST(MatmulSeconds, IsAtLeastTheTimeOfItsMemory) {
  DeviceRates device = plain_device();
  device.memory_bytes_per_second = 1e9;
  const double bytes = 2.0 * (128 * 64 + 64 * 1280 + 128 * 1280);
  EXPECT_DOUBLE_EQ(matmul_seconds(device, {128, 1280, 64}), bytes / 1e9);
}

TEST(AttentionCore, OfHeadsThatAreNoMultipleOfEightWideTakesThreeTimesAsLong) {
  DeviceRates device = plain_device();
  device.memory_bytes_per_second = 1e30;
  const auto seconds = [&](int width) {
    const Architecture model = gpt_architecture("gpt", 8 * width, 8, 8, 51200, 512);
    const BlockWork work = block_work(model, megatron_lm(), setup_of(1, 1, 1, 1), kDenseBlock);
    const KernelSeconds core = mixer_core_seconds(device, work);
    return std::pair{core.forward,
                     matmul_seconds(device, work.scores) + matmul_seconds(device, work.context)};
  };
  EXPECT_NEAR(seconds(144).first, seconds(144).second, 1e-12);
  EXPECT_NEAR(seconds(150).first, 3 * seconds(150).second, 1e-12);
}

TEST(AttentionCore, InTritonTakesLongerThanFlashAttention2) {
  const DeviceRates device = device_rates("A100");
  const auto core = [&](const FrameworkTraits& framework) {
    return mixer_core_seconds(device,
                              block_work(gpt(), framework, setup_of(1, 1, 1, 1), kDenseBlock));
  };
  const KernelSeconds triton = core(llm_foundry()), flash = core(megatron_core());
  EXPECT_DOUBLE_EQ(triton.forward, 1.8 * flash.forward);
  EXPECT_DOUBLE_EQ(triton.backward, 1.8 * flash.backward);
}

TEST(Collectives, MoveWhatARingMoves) {
  const NodeRates node{plain_device(), 100e9, 40e9};
  const double inside = kCollectiveStart + 4 * kCollectiveStartPerMember;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(node, 8, {4, 1}, 1e9), inside + 2 * 0.75 * 1e9 / 100e9);
  EXPECT_DOUBLE_EQ(gather_seconds(node, 8, {4, 1}, 1e9), inside + 0.75 * 1e9 / 100e9);
  EXPECT_EQ(all_reduce_seconds(node, 8, {1, 1}, 1e9), 0);
}

TEST(Collectives, GroupsSideBySideShareTheNetwork) {
  const NodeRates node{plain_device(), 100e9, 40e9};
  EXPECT_EQ(group_bytes_per_second(node, 8, {8, 1}), 100e9);  // fills a node
  EXPECT_EQ(group_bytes_per_second(node, 8, {16, 1}), 40e9);  // one ring over the network
  EXPECT_EQ(group_bytes_per_second(node, 8, {16, 2}), 20e9);  // two of them
  EXPECT_EQ(group_bytes_per_second(node, 8, {16, 8}), 5e9);   // each device its own
  EXPECT_EQ(group_bytes_per_second(node, 8, {16, 64}), 5e9);
}

TEST(BlockWork, HasTheOperationsOfThePaper) {
  // arXiv:2104.04473, appendix: a forward of a block has 24 B s h^2 + 4 B s^2 h operations.
  const Architecture model = gpt();
  ParallelSetup setup = setup_of(1, 1, 1, 1);
  setup.micro_batch_size = 3;
  const BlockWork work = block_work(model, megatron_lm(), setup, kDenseBlock);
  double flops = work.scores.flops() + work.context.flops();
  for (int p = 0; p < work.products_used; ++p) {
    flops += work.products[static_cast<std::size_t>(p)].flops();
  }
  const double b = 3, s = 512, h = 1024;
  EXPECT_DOUBLE_EQ(flops, 24 * b * s * h * h + 4 * b * s * s * h);
}

TEST(BlockWork, TensorParallelRanksDivideEachExpert) {
  const Architecture model = architecture_preset("mixtral-8x7b");
  const auto of = [&](int tensor) {
    return block_work(model, megatron_core(), setup_of(tensor, 8 / tensor, 1, 4), kExpertBlock);
  };
  const auto flops_of_experts = [](const BlockWork& work) {
    double flops = 0;
    for (const Matmul& product : work.products) flops += product.count == 8 ? product.flops() : 0;
    return flops;
  };
  // Two of eight experts a token, three matrices of 4,096 x 14,336 each.
  const double rows = 4096, weights = 3.0 * 4096 * 14336;
  EXPECT_DOUBLE_EQ(flops_of_experts(of(1)), 2 * rows * 2 * weights);
  EXPECT_DOUBLE_EQ(flops_of_experts(of(8)), 2 * rows * 2 * weights / 8);
  EXPECT_DOUBLE_EQ(of(1).expert_parameters, 8 * weights);
  EXPECT_DOUBLE_EQ(of(8).expert_parameters, weights);
}

TEST(SavedBytes, FollowTheFormulaOfThePaper) {
  // arXiv:2205.05198, §4: s b h (10 + 24/t + 5 a s/(h t)), and what each technique makes of it.
  const Architecture model = gpt();
  const double s = 512, b = 2, h = 1024, a = 16, t = 4, scores = 5 * a * s / h;
  ParallelSetup setup = setup_of(4, 1, 1, 1);
  setup.micro_batch_size = 2;
  const auto bytes = [&](LayerRecompute recompute) {
    return saved_bytes(model, megatron_lm(), setup, kDenseBlock, recompute);
  };
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::None), s * b * h * (10 + (24 + scores) / t));
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::Attention), s * b * h * (10 + 24 / t));
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::Whole), 2 * s * b * h);
  setup.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::None), s * b * h * (34 + scores) / t);
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::Attention), s * b * h * 34 / t);
  EXPECT_DOUBLE_EQ(bytes(LayerRecompute::Whole), 2 * s * b * h / t);
}

TEST(EstimateStep, EqualStagesWithoutTransfersFillAndDrainOnce) {
  // (m + p - 1) times a stage's forward and backward, plus embedding and head where they are.
  const Machine machine = nvlink_machine("A100", 100e9);
  const ParallelSetup setup = setup_of(1, 1, 4, 16);
  const StepEstimate estimate = estimate_step(gpt(), megatron_lm(), machine, setup);
  ASSERT_EQ(estimate.rank_seconds.size(), 4U);
  EXPECT_EQ(estimate.rank_seconds[1], estimate.rank_seconds[2]);
  EXPECT_GT(estimate.rank_seconds[3], estimate.rank_seconds[1]);
  const double sum = estimate.rank_seconds[0] + 2 * estimate.rank_seconds[1];
  EXPECT_NEAR(estimate.pipeline, sum + 16 * estimate.rank_seconds[3] + estimate.transfers, 1e-12);
  EXPECT_DOUBLE_EQ(estimate.step, estimate.pipeline + estimate.gradient_reduction +
                                      estimate.tied_reduction + estimate.update);
}

TEST(EstimateStep, RecomputeCostsAForwardAndSelectiveLess) {
  const Machine machine = nvlink_machine("A100", 100e9);
  ParallelSetup setup = setup_of(2, 1, 1, 4);
  setup.micro_batch_size = 8;
  const auto seconds = [&](LayerRecompute recompute) {
    setup.recompute.of_all = recompute;
    return estimate_step(gpt(), megatron_lm(), machine, setup).step;
  };
  EXPECT_LT(seconds(LayerRecompute::None), seconds(LayerRecompute::Attention));
  EXPECT_LT(seconds(LayerRecompute::Attention), seconds(LayerRecompute::Whole));
}

TEST(EstimateStep, LaterZeroStagesReduceAfterEveryMicroBatch) {
  const Machine machine = nvlink_machine("A100", 100e9);
  ParallelSetup setup = setup_of(1, 8, 1, 4);
  std::vector<double> seconds;
  for (const int stage : {0, 1, 2, 3}) {
    setup.zero = stage;
    seconds.push_back(estimate_step(gpt(), megatron_lm(), machine, setup).gradient_reduction);
  }
  EXPECT_LT(seconds[1], seconds[0]);  // weights are half as wide as 32-bit gradients
  EXPECT_GT(seconds[2], 2 * seconds[1]);
  EXPECT_GT(seconds[3], seconds[2]);
}

TEST(EstimateStep, OverlappedReductionShowsOnlyWhatAMicroBatchDoesNotHide) {
  const Machine machine = nvlink_machine("A100", 10e9);
  ParallelSetup setup = setup_of(1, 16, 1, 4);
  const StepEstimate plain = estimate_step(gpt(), megatron_lm(), machine, setup);
  setup.overlap_gradients = true;
  const StepEstimate hidden = estimate_step(gpt(), megatron_lm(), machine, setup);
  ASSERT_GT(plain.gradient_reduction, plain.rank_seconds[0]);
  // Behind the backward alone: there are no weights to gather.
  const LayerSeconds layers =
      layer_seconds(gpt(), megatron_lm(), machine, setup, machine.nodes.front());
  EXPECT_DOUBLE_EQ(hidden.gradient_reduction,
                   plain.gradient_reduction - layers.backward(range_of_rank(gpt(), setup, 0)));
  setup.micro_batch_size = 64;
  EXPECT_EQ(estimate_step(gpt(), megatron_lm(), machine, setup).gradient_reduction, 0);
}

TEST(MachineOf, HasTheClustersMemoryAndNetwork) {
  const Machine machine = machine_of(cluster_preset("dgx-a100-40gb", 16));
  EXPECT_EQ(machine.devices_per_node, 8);
  EXPECT_EQ(machine.nodes.front().device.memory_bytes, 40.0 * (1 << 30));
  EXPECT_EQ(machine.nodes.front().device.memory_bytes_per_second, 1555e9);
  EXPECT_EQ(machine.nodes.front().network_bytes_per_second, 200e9);
  EXPECT_EQ(device_rates("NVIDIA A100-SXM4-80GB").memory_bytes_per_second, 2039e9);
}

TEST(EstimateStep, TheSlowestNodeOfAMixedMachinePacesTheStep) {
  const NodeRates fast{device_rates("V100"), 20e9, 10e9}, slow{device_rates("T4"), 20e9, 10e9};
  const auto seconds = [&](const NodeRates& last) {
    const Machine machine{4, {fast, fast, fast, last}};
    return estimate_step(gpt(), megatron_deepspeed(), machine, setup_of(1, 4, 4, 8));
  };
  const StepEstimate mixed = seconds(slow), equal = seconds(fast);
  EXPECT_EQ(mixed.rank_seconds[1], equal.rank_seconds[1]);
  EXPECT_GT(mixed.rank_seconds[3], 2 * equal.rank_seconds[3]);
  EXPECT_GT(mixed.step, equal.step);
}

TEST(EstimateMemory, EachZeroStageSharesOutMore) {
  ParallelSetup setup = setup_of(1, 8, 1, 4);
  double before = 1e30;
  for (const int stage : {0, 1, 2, 3}) {
    setup.zero = stage;
    const RankBytes bytes = estimate_memory(gpt(), megatron_lm(), setup).front();
    EXPECT_LT(bytes.peak(), before) << stage;
    before = bytes.peak();
  }
  // 2 + 4 + 12 bytes a weight, all of it divided by eight.
  const RankBytes bytes = estimate_memory(gpt(), megatron_lm(), setup).front();
  EXPECT_NEAR(bytes.weights + bytes.gradients + bytes.optimizer, 18 * parameters(gpt()) / 8, 1);
}

TEST(EstimateMemory, FirstRanksKeepMoreMicroBatchesUnder1F1B) {
  const auto ranks = estimate_memory(gpt(), megatron_lm(), setup_of(1, 1, 4, 16));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].in_flight, 4 - rank);
  }
  // Fewer micro-batches than stages: no more than there are.
  EXPECT_EQ(estimate_memory(gpt(), megatron_lm(), setup_of(1, 1, 4, 2)).front().in_flight, 2);
  // What a schedule's simulation says goes in place of it.
  EXPECT_EQ(estimate_memory(gpt(), megatron_lm(), setup_of(1, 1, 4, 16), {7, 7, 7, 7})[2].in_flight,
            7);
}

TEST(EstimateMemory, SaysWhatThePeakIsMadeOf) {
  ParallelSetup setup = setup_of(1, 1, 4, 16);
  setup.micro_batch_size = 64;
  const auto ranks = estimate_memory(gpt(), megatron_lm(), setup);
  EXPECT_EQ(ranks.front().reason(), "the activations of 4 micro-batches in flight");
  EXPECT_EQ(ranks[2].reason(), "the activations of 2 micro-batches in flight");
  EXPECT_EQ(ranks.back().reason(), "the logits");
  setup.micro_batch_size = 1;
  setup.recompute.of_all = LayerRecompute::Whole;
  EXPECT_EQ(estimate_memory(gpt(), megatron_lm(), setup).front().reason(), "the optimizer's state");
}

TEST(Refusals, SayWhatWouldDo) {
  const Machine machine = nvlink_machine("A100", 100e9);
  const auto said = [&](const ParallelSetup& setup) {
    return refusal(gpt(), machine, setup).value_or(Refusal{}).sentence;
  };
  EXPECT_EQ(said(setup_of(1, 1, 1, 1)), "");
  EXPECT_EQ(said(setup_of(3, 1, 1, 1)),
            "tp = 3 does not divide the 16 heads; take a divisor of them");
  ParallelSetup ring = setup_of(4, 1, 1, 1);
  ring.context = 8;  // more than heads, which a ring does not divide
  EXPECT_EQ(said(ring), "");
  ring.context = 3;
  EXPECT_EQ(said(ring), "cp = 3 cuts a sequence into 6 parts, which do not divide its " +
                            std::to_string(gpt().sequence) +
                            " tokens; take a divisor of half of them");
  EXPECT_EQ(said(setup_of(1, 1, 16, 1)),
            "pp * vpp = 16 stages, but only 10 layers with embedding and head; take fewer stages");
  EXPECT_EQ(said(setup_of(1, 1, 10, 1)), "");
  ParallelSetup chunked = setup_of(1, 1, 4, 6);
  chunked.chunks = 2;
  EXPECT_EQ(said(chunked),
            "interleaving needs micro-batches in multiples of pp = 4, found 6; the next is 8");
  ParallelSetup sequence = setup_of(1, 1, 1, 1);
  sequence.sequence_parallel = true;
  EXPECT_EQ(said(sequence),
            "sequence parallel divides the work of tensor parallel ranks, so tp has to be at least "
            "2");
  ParallelSetup zero = setup_of(1, 2, 2, 4);
  zero.zero = 2;
  EXPECT_EQ(
      said(zero),
      "ZeRO 2 shares out gradients after every micro-batch, which a pipeline keeps until its "
      "last; take ZeRO 1, which FSDP is in a pipeline (reshard_after_forward off), or pp = 1");
  EXPECT_EQ(test::refusal([] { device_rates("A101"); }).message(),
            "no rates are known for the device \"A101\"; known are T4, V100, A100, H100, H800, "
            "H200, B200, GB200, B300, GB300, MI300X, MI325X and MI355X");
}

/// Mixtral on 8 ranks of tp 8, each expert whole on one of them, or divided among all.
ParallelSetup mixtral_setup(int experts, int expert_tensor) {
  ParallelSetup setup = setup_of(8, 1, 1, 4);
  setup.experts = experts;
  setup.expert_tensor_degree = expert_tensor;
  setup.sequence_parallel = true;
  return setup;
}

TEST(Experts, WholeOnTensorParallelRanksAreAsManyWeightsAndOperations) {
  const Architecture model = architecture_preset("mixtral-8x7b");
  const ParallelSetup whole = mixtral_setup(8, 1), divided = mixtral_setup(1, 0);
  EXPECT_FALSE(refusal(model, nvlink_machine("H100", 400e9), whole).has_value());
  EXPECT_EQ(expert_parameters_of_rank(model, whole, kExpertBlock),
            expert_parameters_of_rank(model, divided, kExpertBlock));
  const auto flops = [&](const ParallelSetup& setup) {
    const BlockWork work = block_work(model, megatron_core(), setup, kExpertBlock);
    double sum = 0;
    for (int p = work.mixer_products; p < work.products_used - 1; ++p)
      sum += work.products[static_cast<std::size_t>(p)].flops();
    return sum;
  };
  EXPECT_DOUBLE_EQ(flops(whole), flops(divided));
  // Nobody else holds the same expert.
  EXPECT_EQ(whole.expert_replicas(), 1);
}

TEST(Experts, SayWhichDegreesWouldDo) {
  const Architecture model = architecture_preset("mixtral-8x7b");
  const Machine machine = nvlink_machine("H100", 400e9);
  const auto said = [&](const ParallelSetup& setup) {
    const auto reason = refusal(model, machine, setup);
    return reason ? reason->sentence : "";
  };
  EXPECT_EQ(said(mixtral_setup(2, 0)), "ep = 2 has to divide the 8 experts and the 1 replicas");
  EXPECT_EQ(said(mixtral_setup(2, 4)), "etp = 4: each expert is divided by tp, or by nothing");
  ParallelSetup same_tokens = mixtral_setup(8, 1);
  same_tokens.sequence_parallel = false;
  EXPECT_EQ(said(same_tokens),
            "etp = 1 of tp = 8 needs sequence parallelism, which deals tokens out to tensor "
            "parallel ranks");
}

TEST(Blocks, WhatDoesNotDivideGoesToTheMiddle) {
  const Architecture model = gpt_architecture("gpt", 1024, 10, 16, 51200, 512);
  const ParallelSetup setup = setup_of(1, 1, 4, 4);
  std::vector<int> blocks;
  for (int rank = 0; rank < 4; ++rank) blocks.push_back(blocks_of(model, setup, rank));
  EXPECT_EQ(blocks, (std::vector<int>{2, 3, 3, 2}));
}

TEST(Blocks, EmbeddingAndHeadCountAsLayersWhereTheBlocksAreTwoTooFew) {
  // BLOOM: 70 blocks on 12 ranks, 72 layers of 6 each. Llama-3 405B: 126 on 8, 128 of 16.
  for (const auto& [count, ranks] : {std::pair{70, 12}, std::pair{126, 8}, std::pair{8, 10}}) {
    const Architecture model = gpt_architecture("gpt", 1024, count, 16, 51200, 512);
    for (int rank = 0; rank < ranks; ++rank) {
      const bool is_end = rank == 0 || rank == ranks - 1;
      EXPECT_EQ(blocks_of(model, setup_of(1, 1, ranks, 16), rank),
                (count + 2) / ranks - (is_end ? 1 : 0));
    }
  }
}

TEST(Blocks, ARankOfTheEmbeddingAloneHasItsTableAndNoBlock) {
  const auto ranks = estimate_memory(gpt(), megatron_lm(), setup_of(1, 1, 10, 16));
  EXPECT_EQ(ranks[0].activations, 0);
  EXPECT_EQ(ranks[0].weights, 2 * (51200.0 + 512) * 1024);
  EXPECT_GT(ranks[1].activations, 0);
  const StepEstimate step =
      estimate_step(gpt(), megatron_lm(), nvlink_machine("A100", 100e9), setup_of(1, 1, 10, 16));
  EXPECT_LT(step.rank_seconds[0], step.rank_seconds[1]);
}

TEST(Gradients, OfTwoBytesAreHalfTheMemoryAndHalfTheExchange) {
  const FrameworkTraits wide = megatron_core(), narrow = with_gradients(megatron_core(), 2);
  const ParallelSetup setup = setup_of(1, 16, 1, 4);
  const auto bytes = [&](const FrameworkTraits& framework) {
    return estimate_memory(gpt(), framework, setup).front().gradients;
  };
  EXPECT_EQ(bytes(wide), 4 * parameters(gpt()));
  EXPECT_EQ(bytes(narrow), 2 * parameters(gpt()));
  const Machine machine = nvlink_machine("A100", 100e9);
  const auto step = [&](const FrameworkTraits& framework) {
    return estimate_step(gpt(), framework, machine, setup);
  };
  const double start = group_start_seconds(8, {16, 1});
  EXPECT_NEAR(step(narrow).gradient_reduction - start, (step(wide).gradient_reduction - start) / 2,
              1e-12);
  // The update reads two bytes a weight less, adding a micro-batch's reads and writes two less.
  EXPECT_EQ(narrow.optimizer_bytes, wide.optimizer_bytes - 2);
  EXPECT_EQ(narrow.accumulate_bytes, wide.accumulate_bytes - 4);
  EXPECT_LT(step(narrow).update, step(wide).update);
}

TEST(Gradients, OfDeepSpeedAreConvertedBeforeTheyAreAddedToSumsOf32Bits) {
  // Read in 16 bits and written in 32; read, with the sum, which is written.
  EXPECT_EQ(with_gradients(megatron_deepspeed(), 4).accumulate_bytes, (2 + 4) + (4 + 4 + 4));
  EXPECT_EQ(megatron_deepspeed().accumulate_bytes, 2 + 2 + 2);
}

TEST(Gradients, OfTheFrameworksOwnTypeChangeNothing) {
  for (const FrameworkTraits& framework : {megatron_core(), megatron_lm(), megatron_deepspeed()}) {
    const FrameworkTraits same = with_gradients(framework, framework.gradient_bytes);
    EXPECT_EQ(same.accumulate_bytes, framework.accumulate_bytes);
    EXPECT_EQ(same.optimizer_bytes, framework.optimizer_bytes);
    EXPECT_EQ(same.tied_gradient_bytes, framework.tied_gradient_bytes);
  }
}

TEST(UsableBytes, AreNoMoreThanADriverShowsLessTheContext) {
  const auto gibibytes = [](const char* device, double memory) {
    NodeRates node = nvlink_machine(device, 1e11).nodes.front();
    node.device.memory_bytes = memory * 1024 * 1024 * 1024;
    return usable_bytes({}, node) / (1024 * 1024 * 1024);
  };
  EXPECT_DOUBLE_EQ(gibibytes("A100", 80), 0.94 * 80);
  EXPECT_DOUBLE_EQ(gibibytes("H100", 80), 0.94 * 80);
  EXPECT_DOUBLE_EQ(gibibytes("B300", 288), 0.94 * 288);
  EXPECT_NEAR(gibibytes("T4", 16), 14.76 - 1, 1e-9);
  EXPECT_NEAR(gibibytes("V100", 16), 15.77 - 1, 1e-9);
  EXPECT_GT(gibibytes("V100", 0.001), 0);
}

}  // namespace estimate_test
}  // namespace pipewright::planner
