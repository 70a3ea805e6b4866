// What a step of LoRA computes, sends and keeps, by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "planner/estimate/adapters.hpp"
#include "planner/estimate/exposed_messages.hpp"
#include "planner/estimate/gradient_exchange.hpp"
#include "planner/estimate/parallel_search.hpp"
#include "planner/estimate/stage_estimate.hpp"

namespace pipewright::planner {
namespace lora_estimate_test {

constexpr double kHidden = 1024, kInner = 4096, kRows = 2 * 512, kRank = 16;

/// Gated, without biases: products of 1,024 x 3,072, 1,024 x 1,024, 1,024 x 8,192, 4,096 x 1,024.
Architecture llama(std::vector<std::string> modules = default_lora_modules()) {
  Architecture model = gpt_architecture("llama", 1024, 4, 16, 32000, 512);
  model.gated = true;
  model.biases = model.learned_positions = model.tied_head = false;
  if (!modules.empty()) model.lora = {16, std::move(modules)};
  return model;
}
Architecture whole_training() { return llama({}); }

ParallelSetup setup_of(int tensor = 1, bool sequence_parallel = false) {
  ParallelSetup setup;
  setup.micro_batch_size = 2;
  setup.tensor = tensor;
  setup.sequence_parallel = sequence_parallel;
  return setup;
}

BlockWork work_of(const Architecture& model, const ParallelSetup& setup = setup_of()) {
  return block_work(model, megatron_core(), setup, kDenseBlock);
}

double flops_of(const Adapter& adapter) { return adapter.into.flops() + adapter.out.flops(); }

TEST(Lora, AnAdapterIsTwoThinProducts) {
  const BlockWork work = work_of(llama());
  ASSERT_EQ(work.adapters_used, 4);
  const double in[] = {kHidden, kHidden, kHidden, kInner};
  const double out[] = {3 * kHidden, kHidden, 2 * kInner, kHidden};
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(work.adapters[k].product(), static_cast<int>(k));
    EXPECT_EQ(flops_of(work.adapters[k]), 2 * kRows * kRank * (in[k] + out[k]));
    EXPECT_EQ(work.products[k].depth, in[k]);
    EXPECT_EQ(work.products[k].columns, out[k]);
  }
}

/// A backward of frozen weights is one product for each of the forward's; attention's and the
/// adapters' are whole.
TEST(Lora, FrozenWeightsHaveNoGradient) {
  const DeviceRates device = device_rates("H100");
  const BlockWork work = work_of(llama()), all = work_of(whole_training());
  const KernelSeconds frozen = products_seconds(device, work, 0, 4),
                      trained = products_seconds(device, all, 0, 4);
  EXPECT_EQ(frozen.weight, 0);
  EXPECT_EQ(frozen.forward, trained.forward);
  EXPECT_DOUBLE_EQ(frozen.backward, trained.backward - trained.weight);
  EXPECT_EQ(mixer_core_seconds(device, work).backward, mixer_core_seconds(device, all).backward);
  const KernelSeconds adapters = adapter_seconds(device, work, 0, 4);
  EXPECT_GT(adapters.weight, 0);
  EXPECT_GT(adapters.backward, adapters.weight);
  EXPECT_EQ(work.parameters, kRank * (8 * kHidden + 3 * kInner));
}

/// The sum of both results, 6 bytes a number, and of both gradients of the input.
TEST(Lora, SumsReadTwoAndWriteOne) {
  const Architecture none = whole_training(), some = llama({"linear_fc1"});
  FrameworkTraits framework = megatron_core();
  framework.accumulate_bytes = 0;
  const BlockWork all = block_work(none, framework, setup_of(), kDenseBlock),
                  work = block_work(some, framework, setup_of(), kDenseBlock);
  EXPECT_DOUBLE_EQ(work.forward_traffic - all.forward_traffic, 6 * kRows * 2 * kInner);
  EXPECT_DOUBLE_EQ(work.backward_traffic - all.backward_traffic, 6 * kRows * kHidden);
}

TEST(Lora, TensorParallelRanksDivideAdaptersAsTheirLayers) {
  const BlockWork work = work_of(llama(), setup_of(4));
  EXPECT_EQ(work.adapters[0].into.columns, kRank / 4);  // by columns: A by its rank
  EXPECT_EQ(work.adapters[0].into.depth, kHidden);
  EXPECT_EQ(work.adapters[3].into.columns, kRank);  // by rows: A by its inputs
  EXPECT_EQ(work.adapters[3].into.depth, kInner / 4);
  double weights = 0;
  for (const Adapter& adapter : work.adapters)
    weights += adapter.into.columns * adapter.into.depth + adapter.out.columns * adapter.out.depth;
  EXPECT_EQ(weights, adapter_parameters_of_rank(llama(), setup_of(4)));
  EXPECT_EQ(4 * weights, lora_block_parameters(llama()));
}

TEST(Lora, AdaptersSendWhatIsNarrowAndAGatherBehindRows) {
  const NodeRates node = nvlink_machine("H100", 400e9).nodes.front();
  const Group four{4, 1};
  const double narrow = 2 * kRows * kRank, wide = 2 * kRows * kHidden;
  const auto gather = [&](double bytes) { return gather_seconds(node, 8, four, bytes); };
  const auto sum = [&](double bytes) { return all_reduce_seconds(node, 8, four, bytes); };
  const auto sent = [&](const char* module, bool sequence_parallel) {
    const ParallelSetup setup = setup_of(4, sequence_parallel);
    return adapter_messages(node, 8, setup, work_of(llama({module}), setup));
  };
  EXPECT_DOUBLE_EQ(sent("linear_qkv", true).forward, gather(narrow));
  EXPECT_DOUBLE_EQ(sent("linear_qkv", true).backward, sum(narrow));
  EXPECT_DOUBLE_EQ(sent("linear_qkv", false).backward, sum(narrow) + sum(wide));
  EXPECT_DOUBLE_EQ(sent("linear_fc2", true).forward, sum(narrow) + gather(wide));
  EXPECT_DOUBLE_EQ(sent("linear_fc2", true).backward, sum(narrow) + gather(wide));
  EXPECT_DOUBLE_EQ(sent("linear_fc2", false).backward, sum(narrow));
  const ParallelSetup divided = setup_of(4, true);
  const AdapterCalls calls = adapter_calls(divided, work_of(llama(), divided));
  EXPECT_EQ(calls.forward, 2 * (1 + 2));
  EXPECT_EQ(calls.backward, 2 * (1 + 2));
  EXPECT_EQ(adapter_calls(setup_of(), work_of(llama())).backward, 0);
}

/// Nothing is there beside which the scatter of a gradient could go, nor a gather for the gradient
/// of the weights.
TEST(Lora, GradientsMessagesHaveNoProductOfWeightsBesideThem) {
  const ParallelSetup setup = setup_of(4, true);
  const NodeRates node = nvlink_machine("H100", 400e9).nodes.front();
  FrameworkTraits framework = megatron_core();
  ASSERT_TRUE(framework.hides_gradient_messages);
  const BlockWork work = block_work(llama(), framework, setup, kDenseBlock);
  const BlockMessages whole = message_seconds(node, 8, setup, work),
                      exposed = exposed_messages(framework, node, 8, setup, work);
  EXPECT_EQ(exposed.backward.tensor, whole.backward.tensor);
}

/// An adapter that starts 4 kernels forward and 6 back, of which a frozen layer leaves out one.
TEST(Lora, KernelsAreCounted) {
  const auto counts = [](const Architecture& model) {
    return kernel_counts(model, megatron_core(), setup_of(), work_of(model));
  };
  const KernelCounts all = counts(whole_training()), one = counts(llama({"linear_qkv"}));
  EXPECT_EQ(one.forward, all.forward + 4);
  EXPECT_EQ(one.backward, all.backward + 6 - 4);
}

/// Of a mixture with adapters on its attention the experts are frozen: one product backward each.
TEST(Lora, FrozenExpertsHaveHalfTheKernelsBackward) {
  Architecture all = architecture_preset("mixtral-8x7b"), one = all;
  one.lora = {16, {"linear_qkv"}};
  const auto counts = [](const Architecture& model) {
    return kernel_counts(model, megatron_core(), setup_of(),
                         block_work(model, megatron_core(), setup_of(), kExpertBlock));
  };
  EXPECT_EQ(counts(one).backward_in_loops, counts(all).backward_in_loops / 2);
  // Queries, output and router have a gradient of weights less each.
  EXPECT_EQ(counts(one).backward, counts(all).backward + 6 - 3);
  const RangeWeights weights = weights_of(one, setup_of(), blocks_in(one, 0, one.blocks));
  EXPECT_EQ(weights.trained.all, trained_parameters(one));
  EXPECT_EQ(weights.trained.of_experts, 0);
  EXPECT_GT(weights.of_experts, 0);
}

/// Below its first adapter the first block has no backward: of fc2's neither that of the layer's
/// input nor of anything before it.
TEST(Lora, TheFirstAdapterEndsTheBackward) {
  const DeviceRates device = device_rates("H100");
  const auto below = [&](const char* module) {
    return backward_below_adapters(device, work_of(llama({module})));
  };
  const BlockWork qkv = work_of(llama({"linear_qkv"})), fc2 = work_of(llama({"linear_fc2"}));
  EXPECT_DOUBLE_EQ(below("linear_qkv"), products_seconds(device, qkv, 0, 1).backward +
                                            matmul_input_seconds(device, qkv.adapters[0].into));
  EXPECT_DOUBLE_EQ(below("linear_fc2"), products_seconds(device, fc2, 0, 4).backward +
                                            mixer_core_seconds(device, fc2).backward +
                                            matmul_input_seconds(device, fc2.adapters[0].into));
  EXPECT_EQ(backward_below_adapters(device, work_of(whole_training())), 0);

  const Machine machine = nvlink_machine("H100", 400e9);
  const LayerSeconds layers =
      layer_seconds(llama(), nemo(), machine, setup_of(), machine.nodes.front());
  EXPECT_DOUBLE_EQ(layers.backward(blocks_in(llama(), 0, 2)),
                   layers.backward(blocks_in(llama(), 1, 2)) - layers.below_adapters);
  EXPECT_EQ(layers.embedding.weight + layers.head.weight, 0);
  EXPECT_GT(layers.head.input, 0);
}

LayerRange everything(const Architecture& model) {
  LayerRange range = blocks_in(model, 0, model.blocks);
  range.embedding = range.head = true;
  return range;
}

TEST(Lora, FrozenWeightsAreHeldAndNothingElseOfThem) {
  for (const int zero : {0, 1, 3}) {
    ParallelSetup setup = setup_of();
    setup.data = 2;
    setup.zero = zero;
    const Architecture model = llama();
    const double frozen = parameters(model), trained = trained_parameters(model);
    const StateBytes state = state_bytes(model, nemo(), setup, everything(model));
    EXPECT_DOUBLE_EQ(state.weights, 2 * (frozen + trained) / (zero == 3 ? 2 : 1)) << zero;
    EXPECT_DOUBLE_EQ(state.gradients, 2 * trained / (zero == 3 ? 2 : 1)) << zero;
    EXPECT_DOUBLE_EQ(state.optimizer, 10 * trained / (zero > 0 ? 2 : 1)) << zero;
  }
}

/// Of a frozen block: both norms' inputs, queries, keys, values and what leaves attention, the
/// logarithms of 16 heads, and both results of the first product; an adapter keeps its input, where
/// the block has not, and A's result.
TEST(Lora, KeptIsWhatAttentionNormsActivationAndAdaptersRead) {
  const auto kept = [](std::vector<std::string> modules) {
    return saved_bytes(llama(std::move(modules)), nemo(), setup_of(), kDenseBlock,
                       LayerRecompute::None);
  };
  FrameworkTraits framework = nemo();
  const double masks = framework.dropout ? 2 : 0, narrow = 2 * kRows * kRank;
  const double frozen = kRows * ((4 + masks) * kHidden + 2 * 4 * kHidden + 4 * 16 + 4 * kInner);
  EXPECT_DOUBLE_EQ(kept({"linear_proj"}), frozen + narrow);
  EXPECT_DOUBLE_EQ(kept({"linear_qkv"}), frozen + 2 * kRows * kHidden + narrow);
  EXPECT_DOUBLE_EQ(kept({"linear_fc2"}), frozen + 2 * kRows * kInner + narrow);
  EXPECT_DOUBLE_EQ(kept({"q_proj", "v_proj"}), frozen + 2 * kRows * kHidden + 2 * narrow);
}

TEST(Lora, AGatheredInputIsKeptWhole) {
  const auto kept = [](const char* module) {
    return saved_bytes(llama({module}), nemo(), setup_of(4, true), kDenseBlock,
                       LayerRecompute::None);
  };
  EXPECT_DOUBLE_EQ(kept("linear_qkv") - kept("linear_proj"), 2 * kRows * kHidden);
}

TEST(Lora, ReplicasExchangeAdaptersAndGatherAllWeights) {
  const Machine machine = nvlink_machine("H100", 400e9);
  const NodeRates& node = machine.nodes.front();
  const Architecture model = llama();
  ParallelSetup setup = setup_of();
  setup.data = 8;
  const auto seconds = [&](int zero) {
    setup.zero = zero;
    return reduction_seconds(nemo(), machine, setup, node,
                             weights_of(model, setup, everything(model)));
  };
  const Group all{8, 1};
  const double trained = trained_parameters(model), weights = parameters(model) + trained;
  EXPECT_DOUBLE_EQ(seconds(0), all_reduce_seconds(node, 8, all, 2 * trained) +
                                   stream_seconds(node.device, nemo().reduction_bytes * trained));
  // Of as many messages as layers all but one: four blocks have adapters, six layers have weights.
  const double start = ring_start_seconds(8, all);
  EXPECT_NEAR(seconds(3),
              gather_seconds(node, 8, all, 2 * trained) + 3 * start +
                  stream_seconds(node.device, nemo().reduction_bytes * trained) +
                  2 * (gather_seconds(node, 8, all, 2 * weights) + 5 * start),
              1e-12);
  setup.zero = 0;
  EXPECT_DOUBLE_EQ(update_seconds(nemo(), setup, node, weights_of(model, setup, everything(model))),
                   stream_seconds(node.device, nemo().optimizer_bytes * trained));
}

TEST(Lora, TheRankIsDividedByTensorParallelRanks) {
  const Machine machine = nvlink_machine("H100", 400e9);
  Architecture model = llama();
  model.lora.rank = 6;
  const auto fault = refusal(model, machine, setup_of(4));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rule, LeftOut::NoDivisorOfLoraRank);
  EXPECT_FALSE(refusal(model, machine, setup_of(2)));
  model.lora.target_modules = {"linear_proj"};  // whose A is divided by its inputs
  EXPECT_FALSE(refusal(model, machine, setup_of(4)));
}

/// Two of three products, and less than that besides.
TEST(Lora, AStepTakesTwoThirdsOfTrainingAll) {
  const Machine machine = nvlink_machine("H100", 400e9);
  Architecture model = architecture_preset("llama3-8b");
  ParallelSetup setup;
  setup.data = 8;
  setup.micro_batches = 4;
  const double all = estimate_step(model, nemo(), machine, setup).step;
  model.lora = {8, {"linear_qkv"}};
  const double step = estimate_step(model, nemo(), machine, setup).step;
  EXPECT_GT(step, 0.6 * all);
  EXPECT_LT(step, 0.72 * all);
}

}  // namespace lora_estimate_test
}  // namespace pipewright::planner
