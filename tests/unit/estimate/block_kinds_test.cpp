// Blocks of several kinds in one model: hybrids of Mamba, attention and experts, attention to a
// window, experts in some blocks only, blocks for further tokens. Sizes and times by hand.
#include <gtest/gtest.h>

#include <set>

#include <cmath>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/layer_seconds.hpp"

namespace pipewright::planner {
namespace block_kinds_test {

constexpr BlockKind kMamba{Mixer::Mamba, FeedForward::None};
constexpr BlockKind kWindow{Mixer::Window, FeedForward::Dense};
constexpr BlockKind kExpertsAlone{Mixer::None, FeedForward::Experts};

ParallelSetup divided(int tensor) {
  ParallelSetup setup;
  setup.tensor = tensor;
  setup.sequence_parallel = tensor > 1;
  return setup;
}

BlockWork work_of(const Architecture& model, BlockKind kind, const ParallelSetup& setup = {}) {
  return block_work(model, megatron_core(), setup, kind);
}

TEST(BlockKinds, HaveAPlaceEach) {
  const auto kinds = all_block_kinds();
  for (std::size_t k = 0; k < kBlockKinds; ++k) EXPECT_EQ(kinds[k].index(), k);
  EXPECT_EQ(kMamba.parts(), 1);
  EXPECT_EQ(kDenseBlock.parts(), 2);
}

TEST(BlockKinds, ARangeHasThoseOfItsPattern) {
  const Architecture model = architecture_preset("nemotron-3-nano");  // MEMEM*E…
  const BlockCounts counts = blocks_in(model, 1, 5).blocks;           // EMEM*
  EXPECT_EQ(counts.all(), 5);
  EXPECT_EQ(counts.with_experts(), 2);
  EXPECT_EQ(counts.of_kind[kMamba.index()], 2);
}

/// In by 18,560 columns (a gate and inputs of 8,192, 2 x 8 groups x 128 of the state's sides, 128
/// heads), out of 8,192; tensor parallel ranks divide both.
TEST(BlockKinds, MambaHasAProductIntoItAndOneOutOfIt) {
  const Architecture model = architecture_preset("nemotron-h-8b");
  const BlockWork work = work_of(model, kMamba), half = work_of(model, kMamba, divided(2));
  ASSERT_EQ(work.products_used, 2);
  EXPECT_EQ(work.mixer_products, 2);
  EXPECT_EQ(work.products[0].columns, 2 * 8192 + 2 * 8 * 128 + 128);
  EXPECT_EQ(work.products[1].depth, 8192);
  EXPECT_EQ(half.products[0].columns, work.products[0].columns / 2);
  EXPECT_EQ(half.scan_flops, work.scan_flops / 2);
  EXPECT_EQ(half.tensor_messages, 1);
}

/// Of each of 8,192 tokens 64 of its chunk's 128 on average.
TEST(BlockKinds, TheScanGoesByChunksOfTheSequence) {
  const Architecture model = architecture_preset("nemotron-h-8b");
  const BlockWork work = work_of(model, kMamba);
  EXPECT_EQ(work.scan_flops, 2.0 * 8192 * (64 * (8 * 128 + 8192) + 2 * 8192 * 128));
  EXPECT_EQ(work.flash_flops, 0);
  const DeviceRates device = device_rates("H100");
  const KernelSeconds core = mixer_core_seconds(device, work);
  EXPECT_DOUBLE_EQ(core.forward,
                   work.scan_flops / (kScanRate * 132) + stream_seconds(device, work.scan_traffic));
  EXPECT_DOUBLE_EQ(core.backward, 2.5 * core.forward);
}

TEST(BlockKinds, AWindowSeesItsLastTokensAlone) {
  Architecture model = gpt_architecture("gpt", 1024, 4, 16, 50304, 4096);
  model.window = {.tokens = 128, .full_every = 2};
  EXPECT_EQ(model.kind_of(0), kWindow);
  EXPECT_EQ(model.kind_of(1), kDenseBlock);
  const double whole = work_of(model, kDenseBlock).flash_flops;
  // 128 of 4,096 tokens, fewer at the beginning: 128 x (4,096 - 64) in place of 4,096 x 2,048.
  EXPECT_DOUBLE_EQ(work_of(model, kWindow).flash_flops / whole, 128 * 4032.0 / (4096 * 2048.0));
  model.window.tokens = 4096;
  EXPECT_EQ(work_of(model, kWindow).flash_flops, whole);
  EXPECT_EQ(work_of(model, kWindow).products_used, work_of(model, kDenseBlock).products_used);
}

TEST(BlockKinds, AHalfAloneSendsAndKeepsItsPart) {
  const Architecture model = architecture_preset("nemotron-h-8b");
  const NodeRates node = nvlink_machine("H100", 400e9).nodes.front();
  const ParallelSetup setup = divided(8);
  const BlockMessages mamba = message_seconds(node, 8, setup, work_of(model, kMamba, setup));
  EXPECT_GT(mamba.forward.tensor[0], 0);
  EXPECT_EQ(mamba.forward.tensor[2] + mamba.forward.tensor[3], 0);
  EXPECT_EQ(mamba.backward.tensor[0] + mamba.backward.tensor[1],
            0);  // begins with what is not there
  const BlockKind dense{Mixer::None, FeedForward::Dense};
  const BlockMessages fed = message_seconds(node, 8, setup, work_of(model, dense, setup));
  EXPECT_EQ(fed.forward.of_tensor(), mamba.forward.of_tensor());
  EXPECT_EQ(work_of(model, dense).mixer_products, 0);
  // Mamba: what enters it, what the scan gives, the last product's input; around it an input and
  // the product's.
  const double rows = 8192, entering = 2 * 8192 + 2 * 8 * 128 + 128;
  EXPECT_EQ(saved_bytes(model, megatron_core(), {}, kMamba, LayerRecompute::None),
            rows * (2 * (entering + 8192) + 2 * 8192 + 4 * 4096));
}

TEST(BlockKinds, ExpertsOfALatentWidthReadAndSendItAlone) {
  const Architecture model = architecture_preset("nemotron-3-super");
  const BlockWork work = work_of(model, kExpertsAlone);
  EXPECT_EQ(work.products[0].columns, 1024);  // to the latent width, and back
  EXPECT_EQ(work.products[1].depth, 1024);
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  EXPECT_EQ(work_of(model, kExpertsAlone, setup).expert_message, 2.0 * 8192 * 22 * 1024);
}

/// Tokens that take the experts in turn, counted one by one until they come round again.
TEST(BlockKinds, ExpertsInTurnLieOnFewDevices) {
  for (const auto& [count, chosen] : {std::pair(128, 8), {256, 8}, {512, 22}, {96, 5}}) {
    for (const int places : {1, 2, 4, 8, 32}) {
      int held = 0;
      for (int token = 0; token < count; ++token) {
        std::set<int> of_token;
        for (int k = 0; k < chosen; ++k)
          of_token.insert((token * chosen + k) % count / (count / places));
        held += static_cast<int>(of_token.size());
      }
      EXPECT_NEAR(places_of_token({.count = count, .chosen = chosen}, places, true),
                  static_cast<double>(held) / count, 1e-12)
          << count << " " << chosen << " " << places;
    }
  }
}

/// 64 devices in 8 nodes; a token's 8 of 128 experts are in 5.3 of these, on 7.8 devices.
TEST(BlockKinds, ATokenThatIsSentOnceGoesToEachNodeOnce) {
  const Architecture model = architecture_preset("qwen3-30b-a3b");
  ParallelSetup setup;
  setup.data = setup.experts = 64;
  FrameworkTraits framework = megatron_core();
  framework.sends_tokens_once = true;
  const BlockWork work = block_work(model, framework, setup, kExpertBlock);
  const double nodes = places_of_token(model.experts, 8, false);
  EXPECT_NEAR(nodes, 5.34, 0.005);
  EXPECT_NEAR(places_of_token(model.experts, 64, false), 7.78, 0.005);
  EXPECT_EQ(places_of_token(model.experts, 1, false), 1);
  NodeRates node = nvlink_machine("H100", 400e9).nodes.front();
  node.inside_bytes_per_second = 1e15;
  const double token = 2.0 * model.sequence * model.hidden,
               start = group_start_seconds(8, {64, 1}) - 3 * kTreeLevel;
  EXPECT_NEAR(message_seconds(node, 8, setup, work).forward.experts,
              2 * (start + 7.0 / 8 * nodes * token / (400e9 / 8)), 1e-9);
}

TEST(BlockKinds, BiasesOfExpertsAreAddedAfterTheirProducts) {
  Architecture model = architecture_preset("gpt-oss-120b");
  const double with = work_of(model, kExpertBlock).forward_traffic;
  FrameworkTraits framework = megatron_core();
  framework.groups_experts = true;
  const double grouped = block_work(model, framework, {}, kExpertBlock).forward_traffic;
  EXPECT_NEAR(with - grouped, 28.0 * model.sequence * 4 * 2880, 1e-3);
}

/// Each with a product from both inputs, a block, and the head once more.
TEST(BlockKinds, FurtherTokensTakeABlockAndAHeadEach) {
  Architecture model = architecture_preset("deepseek-v3");
  const Machine machine = nvlink_machine("H100", 400e9);
  const NodeRates node = machine.nodes.front();
  const auto head = [&] { return layer_seconds(model, megatron_core(), machine, {}, node).head; };
  const EndSeconds none = head();
  model.further_tokens = 1;
  const EndSeconds one = head();
  model.further_tokens = 2;
  EXPECT_NEAR(head().sum() - one.sum(), one.sum() - none.sum(), 1e-9);
  const BlockSeconds block =
      layer_seconds(model, megatron_core(), machine, {}, node).blocks[kExpertBlock.index()];
  const Matmul both{4096, 7168, 2 * 7168};
  EXPECT_NEAR(one.forward - 2 * none.forward, block.forward + matmul_seconds(node.device, both),
              1e-9);
  const LayerRange end{.blocks = {}, .head = true};
  model.further_tokens = 0;
  const double weights = weights_of(model, {}, end).all;
  model.further_tokens = 1;
  EXPECT_NEAR(weights_of(model, {}, end).all - weights,
              3 * 7168 + 2.0 * 7168 * 7168 + block_parameters(model, kExpertBlock), 1);
  EXPECT_NEAR(parameters(model) / 1e9, 682.5, 0.2);  // 671 and 11.5 (its card: 685 with a table)
}

}  // namespace block_kinds_test
}  // namespace pipewright::planner
