// Times of layers that were found once stand for all setups that divide a layer alike.
#include <gtest/gtest.h>

#include "planner/estimate/layer_seconds.hpp"
#include "planner/estimate/parallel_space.hpp"

namespace pipewright::planner {
namespace known_layers_test {

void expect_same(const LayerSeconds& a, const LayerSeconds& b, const std::string& setup) {
  EXPECT_EQ(a.below_adapters, b.below_adapters) << setup;
  for (const BlockKind kind : all_block_kinds()) {
    const LayerRange one{.blocks = blocks_of_kind(kind, 1)};
    EXPECT_EQ(a.forward(one), b.forward(one)) << setup;
    EXPECT_EQ(a.backward(one), b.backward(one)) << setup;
    EXPECT_EQ(a.weight(one), b.weight(one)) << setup;
  }
  for (const LayerRange& end : {LayerRange{.embedding = true}, LayerRange{.head = true}}) {
    EXPECT_EQ(a.forward(end), b.forward(end)) << setup;
    EXPECT_EQ(a.backward(end), b.backward(end)) << setup;
    EXPECT_EQ(a.weight(end), b.weight(end)) << setup;
  }
}

/// Every setup of the space.
int compared(const Architecture& model, const FrameworkTraits& framework) {
  const Machine machine = nvlink_machine("H100", 400e9);
  ParallelSpace space{.devices = 64, .global_batch = 64};
  space.context = {1, 2};
  space.whole_experts_too = true;
  space.overlap_gradients = true;
  KnownLayers known;
  int count = 0;
  for_each_setup(model, framework, space,
                 {[&](const ParallelSetup& setup) {
                    if (refusal(model, machine, setup) || ++count % 7 != 0) return;
                    expect_same(
                        known.of(model, framework, machine, setup, machine.nodes.front()),
                        layer_seconds(model, framework, machine, setup, machine.nodes.front()),
                        describe(setup));
                  },
                  [](LeftOut, const ParallelSetup&) {}});
  return count;
}

TEST(KnownLayers, AreThoseOfEachSetup) {
  FrameworkTraits offloading = nemo();
  offloading.offloaded_blocks = 4;
  for (const FrameworkTraits& framework :
       {megatron_core(), offloading, megatron_deepspeed(), torchtitan(), maxtext()}) {
    SCOPED_TRACE(framework.name);
    EXPECT_GT(compared(gpt_architecture("gpt", 4096, 16, 32, 51200, 2048), framework), 1000);
  }
  EXPECT_GT(compared(architecture_preset("deepseek-v3"), megatron_core()), 1000);
  Architecture adapted = architecture_preset("llama3-8b");
  adapted.lora = {.rank = 16, .target_modules = {"linear_qkv"}};
  EXPECT_GT(compared(adapted, nemo()), 1000);
}

}  // namespace known_layers_test
}  // namespace pipewright::planner
