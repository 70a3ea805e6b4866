// What recipes change of a framework: parts that are computed again, activations in the host's
// memory, what the optimizer keeps, and the kernels of experts, by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/step_estimate.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
namespace recipe_traits_test {

constexpr double kRows = 4096;

Architecture deepseek() {
  Architecture model = architecture_preset("deepseek-v3");
  model.sequence = static_cast<int>(kRows);
  return model;
}

double kept(const FrameworkTraits& framework, const ParallelSetup& setup = {}) {
  return saved_bytes(deepseek(), framework, setup, kExpertBlock, LayerRecompute::None);
}

TEST(RecipeTraits, PartsThatAreComputedAgainAreNotKept) {
  const Architecture model = deepseek();
  FrameworkTraits framework = megatron_core();
  const double all = kept(framework);
  framework.recomputes_norms = true;  // what two norms hand to products, 16 bits each
  EXPECT_DOUBLE_EQ(all - kept(framework), 2 * 2 * kRows * model.hidden);
  framework = megatron_core();
  framework.recomputes_activations = true;  // what experts' activations hand to the second product
  EXPECT_DOUBLE_EQ(all - kept(framework),
                   2 * kRows * model.experts.chosen * static_cast<double>(model.experts.ffn));
  framework = megatron_core();
  framework.recomputes_projections = true;  // queries and keys of 192, values of 128 a head
  EXPECT_DOUBLE_EQ(all - kept(framework), 2 * kRows * model.heads * (192 + 192 + 128));
}

TEST(RecipeTraits, WhatIsComputedAgainTakesItsTime) {
  const Architecture model = deepseek();
  const DeviceRates device = device_rates("H100");
  const auto seconds = [&](const FrameworkTraits& framework, LayerRecompute recompute) {
    ParallelSetup setup;
    setup.recompute.of_all = recompute;
    return recomputed_parts_seconds(device, model, framework, setup, kExpertBlock);
  };
  FrameworkTraits framework = megatron_core();
  EXPECT_EQ(seconds(framework, LayerRecompute::None), 0);
  framework.recomputes_norms = true;  // two norms read and write
  EXPECT_DOUBLE_EQ(seconds(framework, LayerRecompute::None),
                   stream_seconds(device, 8 * kRows * model.hidden));
  EXPECT_EQ(seconds(framework, LayerRecompute::Whole), 0);  // the block's own forward has them
  framework = megatron_core();
  framework.recomputes_projections = true;  // 1,536 to 128 x 192, and 512 to 128 x (128 + 128)
  EXPECT_DOUBLE_EQ(seconds(framework, LayerRecompute::None),
                   matmul_seconds(device, {kRows, 128 * 192, 1536}) +
                       matmul_seconds(device, {kRows, 128 * 256, 512}));
}

TEST(RecipeTraits, OffloadedBlocksKeepOneAtATimeAndTakeWhatTheLinkDoesNotHide) {
  const Architecture model = architecture_preset("llama3-8b");  // 32 blocks
  FrameworkTraits framework = megatron_core();
  ParallelSetup setup;
  const auto activations = [&] {
    return estimate_memory(model, framework, setup).front().activations;
  };
  const double all = activations();
  framework.offloaded_blocks = 17;
  EXPECT_DOUBLE_EQ(activations(), all / 2);
  Machine machine = nvlink_machine("H100", 400e9);
  const auto step = [&] { return estimate_step(model, framework, machine, setup).step; };
  machine.nodes.front().device.host_bytes_per_second = 1e15;  // hides all
  const double hidden = step();
  const double bytes = saved_bytes(model, framework, setup, kDenseBlock, LayerRecompute::None);
  machine.nodes.front().device.host_bytes_per_second = bytes;  // a second each way
  EXPECT_GT(step(), hidden + 16 * 1.9);
  EXPECT_LT(step(), hidden + 16 * 2);
  setup.pipeline = 2;  // Megatron core refuses the two together
  framework.offloaded_blocks = 0;
  const double divided = activations();
  framework.offloaded_blocks = 17;
  EXPECT_DOUBLE_EQ(activations(), divided);
}

TEST(RecipeTraits, NvidiasRecipesKeepGradientsOf16BitsAndWhatWeightsLackOf32) {
  const Architecture model = architecture_preset("llama3-8b");
  const LayerRange block{.blocks = blocks_of_kind(kDenseBlock, 1)};
  const double weights = block_parameters_of_rank(model, {}, kDenseBlock);
  const auto bytes = [&](const FrameworkTraits& framework) {
    return state_bytes(model, framework, {}, block).sum() / weights;
  };
  EXPECT_DOUBLE_EQ(bytes(megatron_core()), 2 + 4 + 12);
  EXPECT_DOUBLE_EQ(bytes(nemo()), 2 + 2 + 10);
  EXPECT_DOUBLE_EQ(bytes(with_products(nemo(), "fp8")), 2 + 2 + 12);
}

TEST(RecipeTraits, EveryExpertHasKernelsOfItsOwn) {
  const Architecture model = deepseek();  // 256 experts
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  const auto counts = [&](const FrameworkTraits& framework, BlockKind kind) {
    return kernel_counts(model, framework, setup, block_work(model, framework, setup, kind));
  };
  const FrameworkTraits framework = megatron_core();
  EXPECT_EQ(counts(framework, kDenseBlock).forward, framework.forward_kernels);
  EXPECT_EQ(counts(framework, kDenseBlock).forward_in_loops, 0);
  EXPECT_EQ(counts(framework, kExpertBlock).forward,
            framework.forward_kernels + framework.expert_kernels);
  EXPECT_EQ(counts(framework, kExpertBlock).backward,
            framework.backward_kernels + framework.expert_kernels);
  // Four on a rank, two products forward and four backward.
  EXPECT_EQ(counts(framework, kExpertBlock).forward_in_loops, 8);
  EXPECT_EQ(counts(framework, kExpertBlock).backward_in_loops, 16);
  const FrameworkTraits narrow = with_products(framework, "fp8");  // each is converted
  EXPECT_EQ(counts(narrow, kExpertBlock).forward_in_loops, 16);
}

/// A step that is one CUDA graph leaves the host nothing to start; with attention, router and
/// sorting as graphs it starts these and what is around the experts.
TEST(RecipeTraits, GraphsLeaveTheHostFewKernels) {
  const Architecture model = deepseek();
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  FrameworkTraits framework = megatron_core();
  framework.graphs_routing = true;
  const auto counts = [&](BlockKind kind) {
    return kernel_counts(model, framework, setup, block_work(model, framework, setup, kind));
  };
  EXPECT_EQ(counts(kExpertBlock).forward, 14);
  EXPECT_EQ(counts(kExpertBlock).backward, 26);
  EXPECT_EQ(counts(kExpertBlock).forward_in_loops, 8);
  EXPECT_EQ(counts(kDenseBlock).forward, framework.forward_kernels);
  framework.groups_experts = true;
  EXPECT_EQ(counts(kExpertBlock).forward_in_loops, 2);
  framework.graphs_steps = true;
  EXPECT_EQ(counts(kExpertBlock).forward + counts(kExpertBlock).backward +
                counts(kExpertBlock).forward_in_loops,
            0);

  const Machine machine = nvlink_machine("H100", 400e9);
  FrameworkTraits slow_host = framework;
  slow_host.launch_seconds = 1;
  EXPECT_EQ(estimate_step(model, slow_host, machine, setup).step,
            estimate_step(model, framework, machine, setup).step);
}

/// Eight experts of a token on two devices: each device has some but where all are the other's, so
/// 2 · (1 - 4·3/(8·7)) copies of the two.
TEST(RecipeTraits, ATokenGoesOnceToEachDeviceThatHoldsSomeOfItsExperts) {
  Architecture model = architecture_preset("mixtral-8x7b");
  ParallelSetup setup;
  setup.data = setup.experts = 2;
  FrameworkTraits framework = megatron_core();
  const BlockWork copies = block_work(model, framework, setup, kExpertBlock);
  framework.sends_tokens_once = true;
  const BlockWork once = block_work(model, framework, setup, kExpertBlock);
  EXPECT_DOUBLE_EQ(once.expert_message, copies.expert_message * (1 - 12.0 / 56));
  // They are not put in order before they are sent, nor after they have come back.
  EXPECT_DOUBLE_EQ(copies.forward_traffic - once.forward_traffic,
                   8.0 * model.sequence * model.experts.chosen * model.hidden);
  setup.data = setup.experts = 1;
  EXPECT_EQ(block_work(model, framework, setup, kExpertBlock).forward_traffic,
            block_work(model, megatron_core(), setup, kExpertBlock).forward_traffic);
}

TEST(RecipeTraits, MessagesAmongExpertsAreHiddenAsFarAsThereIsWork) {
  const Architecture model = deepseek();
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  FrameworkTraits framework = megatron_core();
  const auto exposed = [&](double network) {
    return block_seconds(model, framework, nvlink_machine("H100", network).nodes.front(), 8, setup,
                         kExpertBlock)
        .expert_messages;
  };
  const double shown = exposed(400e9);
  framework.hides_expert_messages = true;
  EXPECT_GT(shown, exposed(400e9));
  EXPECT_EQ(exposed(1e13), 0);
  EXPECT_GT(exposed(1e9), 10 * shown);
}

TEST(RecipeTraits, KernelsOfExpertsTakeTheDriversTimeAlone) {
  Architecture model = deepseek();
  model.sequence = 128;  // so little work that the host's time is all
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  FrameworkTraits framework = megatron_core();
  framework.launch_seconds = 1e-2;
  const double forward =
      block_seconds(model, framework, nvlink_machine("H100", 400e9).nodes.front(), 8, setup,
                    kExpertBlock)
          .forward;
  EXPECT_NEAR(forward,
              1e-2 * (framework.forward_kernels + framework.expert_kernels) + 8 * kLaunchInLoop,
              5e-6);
}

/// 16 heads in one sample of a GPT, on tp ranks.
BlockWork gpt_work(const FrameworkTraits& framework, int tensor, int samples) {
  ParallelSetup setup;
  setup.tensor = tensor;
  setup.micro_batch_size = samples;
  return block_work(gpt_architecture("gpt", 1024, 24, 16, 51200, 1024), framework, setup,
                    kDenseBlock);
}

TEST(RecipeTraits, FusedSoftmaxTakesAMultipleOfFourHeads) {
  const double scores = 1024 * 1024;  // of a head
  EXPECT_DOUBLE_EQ(gpt_work(megatron_lm(), 4, 1).core_traffic, 8 * 4 * scores);
  EXPECT_DOUBLE_EQ(gpt_work(megatron_lm(), 8, 2).core_traffic, 8 * 4 * scores);
  const BlockWork two = gpt_work(megatron_lm(), 8, 1);
  EXPECT_DOUBLE_EQ(two.core_traffic, 17 * 2 * scores);
  EXPECT_DOUBLE_EQ(two.core_backward_traffic, 19 * 2 * scores);
  // As many kernels again, and twice as many backward; without fused ones nothing changes.
  const Architecture model = gpt_architecture("gpt", 1024, 24, 16, 51200, 1024);
  const KernelCounts more = kernel_counts(model, megatron_lm(), {}, two),
                     fused = kernel_counts(model, megatron_lm(), {}, gpt_work(megatron_lm(), 8, 2));
  EXPECT_EQ(more.forward - fused.forward, megatron_lm().attention_core_kernels);
  EXPECT_EQ(more.backward - fused.backward, 2 * megatron_lm().attention_core_kernels);
  EXPECT_FALSE(gpt_work(megatron_deepspeed_timed(), 8, 1).unfused_softmax);
}

TEST(RecipeTraits, ProductsAddToSumsPartlyBesideTheirArithmetic) {
  const DeviceRates device = device_rates("B200");
  // Of 57,344 x 8,192 weights, from 4,096 rows, and from 1,024.
  for (const double rows : {4096.0, 1024.0}) {
    Matmul product{rows, 57344, 8192};
    const double alone = matmul_weight_seconds(device, product);
    product.sum_bytes = 8;
    const double with_sums = matmul_weight_seconds(device, product);
    const double traffic = stream_seconds(device, 8.0 * 57344 * 8192 + 2 * rows * (57344 + 8192));
    EXPECT_GT(with_sums, std::max(alone, traffic));
    EXPECT_LT(with_sums, alone + traffic);
    EXPECT_DOUBLE_EQ(matmul_seconds(device, product), matmul_seconds(device, {rows, 57344, 8192}));
  }
}

TEST(RecipeTraits, FusedAccumulationIsNoTrafficOfItsOwn) {
  FrameworkTraits framework = megatron_lm();
  const BlockWork fused = gpt_work(framework, 1, 1);
  framework.fuses_accumulation = false;
  const BlockWork apart = gpt_work(framework, 1, 1);
  EXPECT_DOUBLE_EQ(apart.backward_traffic - fused.backward_traffic,
                   apart.parameters * framework.accumulate_bytes);
  EXPECT_EQ(fused.products[0].sum_bytes, framework.accumulate_bytes);
  EXPECT_EQ(apart.products[0].sum_bytes, 0);
}

/// CUDA_LAUNCH_BLOCKING=1: what the host takes for a block's kernels adds to the device's time.
TEST(RecipeTraits, HostAndDeviceTakeTurnsWhereLaunchesBlock) {
  const Architecture model = gpt_architecture("gpt", 4096, 24, 32, 51200, 2048);
  const NodeRates node = nvlink_machine("A100", 100e9).nodes.front();
  ParallelSetup setup;
  setup.tensor = 4;
  FrameworkTraits framework = megatron_lm(), without_host = framework;
  without_host.launch_seconds = 0;
  without_host.hides_gradient_messages = false;
  framework.blocking_launches = true;
  const auto block = [&](const FrameworkTraits& traits) {
    return block_seconds(model, traits, node, 8, setup, kDenseBlock);
  };
  const double host = framework.launch_seconds;
  const int messages = 4;  // two all-reduces each way, a launch and a wait
  EXPECT_NEAR(block(framework).forward,
              block(without_host).forward + host * (framework.forward_kernels + messages), 1e-12);
  EXPECT_NEAR(block(framework).backward,
              block(without_host).backward + host * (framework.backward_kernels + messages), 1e-12);
  const double rows = 2048;
  const Machine machine = nvlink_machine("A100", 100e9);
  const auto ends = [&](const FrameworkTraits& traits) {
    return head_seconds(model, traits, node, machine, setup, rows).sum() +
           embedding_seconds(model, traits, node, machine, setup, rows).sum();
  };
  EXPECT_NEAR(ends(framework),
              ends(without_host) + host * (framework.head_kernels + framework.embedding_kernels),
              1e-12);
}

}  // namespace recipe_traits_test
}  // namespace pipewright::planner
