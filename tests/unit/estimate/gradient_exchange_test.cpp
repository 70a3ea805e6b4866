// What replicas exchange in a step, and how much of it computation hides.
#include "planner/estimate/gradient_exchange.hpp"

#include <gtest/gtest.h>

namespace pipewright::planner {
namespace gradient_exchange_test {

Architecture gpt() { return gpt_architecture("gpt", 1024, 8, 16, 51200, 512); }

ParallelSetup sharded(int zero, int replicas, int micro_batches) {
  ParallelSetup setup;
  setup.data = replicas;
  setup.micro_batches = micro_batches;
  setup.zero = zero;
  return setup;
}

LayerRange whole() {
  return {.blocks = blocks_of_kind(kDenseBlock, 8), .embedding = true, .head = true};
}

struct Seconds {
  double all = 0, exposed = 0;
};
Seconds seconds_of(const ParallelSetup& setup, double network_bytes_per_second) {
  const Machine machine = nvlink_machine("A100", network_bytes_per_second);
  const NodeRates& node = machine.nodes.front();
  const FrameworkTraits framework = megatron_core();
  const LayerSeconds layers = layer_seconds(gpt(), framework, machine, setup, node);
  const RangeWeights weights = weights_of(gpt(), setup, whole());
  return {
      reduction_seconds(framework, machine, setup, node, weights),
      exposed_exchange_seconds(gpt(), framework, machine, setup, node, whole(), weights, layers)};
}

TEST(RingStart, GrowsWithTheNodesThatItGoesThrough) {
  const double inside = ring_start_seconds(8, {8, 1});
  EXPECT_EQ(inside, group_start_seconds(8, {8, 1}));
  // Sixteen members on two nodes: one step to the other node, fourteen inside.
  EXPECT_DOUBLE_EQ(ring_start_seconds(8, {16, 1}),
                   inside + kNetworkStart + kRingStepAcross + 14 * kRingStepInside);
  EXPECT_DOUBLE_EQ(ring_start_seconds(8, {64, 1}) - ring_start_seconds(8, {32, 1}),
                   4 * kRingStepAcross + 28 * kRingStepInside);
  // A tree of four nodes has two levels.
  EXPECT_DOUBLE_EQ(group_start_seconds(8, {32, 1}), inside + kNetworkStart + 2 * kTreeLevel);
}

TEST(Exchange, UnderZero3GrowsWithTheMicroBatches) {
  const Seconds four = seconds_of(sharded(3, 16, 4), 100e9),
                eight = seconds_of(sharded(3, 16, 8), 100e9);
  EXPECT_NEAR(eight.all, 2 * four.all, 1e-12);
  EXPECT_NEAR(eight.exposed, 2 * four.exposed, 1e-12);
}

TEST(Exchange, OfGradientsThatAreSummedWholeIsOneScatterAStep) {
  const Machine machine = nvlink_machine("A100", 1e9);
  const NodeRates& node = machine.nodes.front();
  FrameworkTraits once = torchtitan();
  once.scatters_once = true;
  const ParallelSetup one = sharded(3, 16, 1), four = sharded(3, 16, 4);
  const LayerSeconds layers = layer_seconds(gpt(), once, machine, four, node);
  const RangeWeights weights = weights_of(gpt(), four, whole());
  const auto all = [&](const FrameworkTraits& framework, const ParallelSetup& setup) {
    return reduction_seconds(framework, machine, setup, node, weights);
  };
  const auto exposed = [&](const FrameworkTraits& framework, const ParallelSetup& setup) {
    return exposed_exchange_seconds(gpt(), framework, machine, setup, node, whole(), weights,
                                    layers);
  };
  // Of one micro-batch there is nothing to sum.
  EXPECT_EQ(all(once, one), all(torchtitan(), one));
  EXPECT_EQ(exposed(once, one), exposed(torchtitan(), one));
  const double gathers = (all(once, four) - all(once, one)) / 3;
  EXPECT_NEAR(all(torchtitan(), four) - all(once, four), 3 * (all(once, one) - gathers), 1e-9);
  EXPECT_LT(exposed(once, four), exposed(torchtitan(), four));
  EXPECT_GT(exposed(once, four), exposed(once, one));
  // All of them are held, in 32 bits, where a sixteenth was.
  const auto held = [&](const FrameworkTraits& framework) {
    return state_bytes(gpt(), framework, four, whole()).gradients;
  };
  EXPECT_DOUBLE_EQ(held(once), 4 * weights.trained.all);
  EXPECT_DOUBLE_EQ(16 * held(torchtitan()), held(once));
}

TEST(Exchange, EachLayerIsAMessageOfItsOwn) {
  const Machine machine = nvlink_machine("A100", 1e30);
  Machine wires = machine;
  wires.nodes.front().inside_bytes_per_second = 1e30;
  const ParallelSetup setup = sharded(3, 16, 4);
  const RangeWeights weights = weights_of(gpt(), setup, whole());
  // Eight blocks, the embedding and the head: two gathers and a scatter of each.
  EXPECT_NEAR(reduction_seconds(megatron_core(), wires, setup, wires.nodes.front(), weights),
              4 * 3 * 10 * ring_start_seconds(8, {16, 1}), 1e-9);
}

TEST(Exchange, ASlowNetworkIsHiddenByNoMoreThanTheBlocksTakes) {
  const ParallelSetup setup = sharded(3, 16, 4);
  const Machine machine = nvlink_machine("A100", 1e6);
  const LayerSeconds layers =
      layer_seconds(gpt(), megatron_core(), machine, setup, machine.nodes.front());
  const Seconds seconds = seconds_of(setup, 1e6);
  // Each direction's first gather and the last scatter have nothing beside them.
  EXPECT_NEAR(seconds.all - seconds.exposed, 4 * 7 * layers.blocks[kDenseBlock.index()].both(),
              1e-6 * seconds.all);
}

TEST(Exchange, AFastNetworkLeavesTheEndsExposed) {
  // Bytes take no time, and a block computes longer than a message needs to start.
  ParallelSetup setup = sharded(3, 16, 4);
  setup.micro_batch_size = 64;
  const double start = ring_start_seconds(8, {16, 1});
  const Seconds seconds = seconds_of(setup, 1e30);
  // Of embedding, head and one block two gathers and a scatter each.
  EXPECT_NEAR(seconds.exposed, 4 * 9 * start, 1e-9);
  EXPECT_LT(seconds.exposed, seconds.all);
}

TEST(Exchange, UpToZero1ABackwardHidesGradientsAndAForwardWeights) {
  const Machine slow = nvlink_machine("A100", 1e8);
  const LayerSeconds layers =
      layer_seconds(gpt(), megatron_core(), slow, sharded(0, 16, 4), slow.nodes.front());
  const double forward = layers.forward(whole()), backward = layers.backward(whole());
  const Seconds reduced = seconds_of(sharded(0, 16, 4), 1e8),
                divided = seconds_of(sharded(1, 16, 4), 1e8);
  EXPECT_NEAR(reduced.all - reduced.exposed, backward, 1e-9);
  EXPECT_NEAR(divided.all - divided.exposed, forward + backward, 1e-9);
}

}  // namespace gradient_exchange_test
}  // namespace pipewright::planner
