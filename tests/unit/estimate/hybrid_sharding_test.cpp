// ZeRO among groups of replicas that each hold all of the state (hybrid sharding).
#include <gtest/gtest.h>

#include "planner/estimate/gradient_exchange.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {
namespace hybrid_sharding_test {

Architecture gpt() { return gpt_architecture("gpt", 1024, 8, 16, 51200, 512); }

LayerRange whole() {
  return {.blocks = blocks_of_kind(kDenseBlock, 8), .embedding = true, .head = true};
}

ParallelSetup sharded(int zero, int replicas, int shards) {
  ParallelSetup setup;
  setup.data = replicas;
  setup.zero = zero;
  setup.shards = shards;
  return setup;
}

double reduction(const ParallelSetup& setup) {
  const Machine machine = nvlink_machine("A100", 100e9);
  return reduction_seconds(megatron_core(), machine, setup, machine.nodes.front(),
                           weights_of(gpt(), setup, whole()));
}

TEST(HybridSharding, GroupsScatterSumTheirPartsAndGather) {
  const Machine machine = nvlink_machine("A100", 100e9);
  const NodeRates& node = machine.nodes.front();
  const FrameworkTraits framework = megatron_core();
  const double count = weights_of(gpt(), {}, whole()).all;
  const double bytes = framework.gradient_bytes * count;
  // Eight groups, each a node; of each part one device a node.
  const Group group{8, 1}, across{8, 8};
  EXPECT_NEAR(reduction(sharded(1, 64, 8)),
              stream_seconds(node.device, framework.reduction_bytes * count) +
                  gather_seconds(node, 8, group, bytes) +
                  all_reduce_seconds(node, 8, across, bytes / 8) +
                  gather_seconds(node, 8, group, 2 * count),
              1e-12);
}

TEST(HybridSharding, WeightsAreGatheredInsideTheGroupAlone) {
  // Under ZeRO 3 what is beyond the sums across is what one group alone exchanges.
  const Machine machine = nvlink_machine("A100", 100e9);
  const NodeRates& node = machine.nodes.front();
  const double bytes = megatron_core().gradient_bytes * weights_of(gpt(), {}, whole()).all;
  const Group across{4, 8};
  EXPECT_NEAR(reduction(sharded(3, 32, 8)) - reduction(sharded(3, 8, 0)),
              all_reduce_seconds(node, 8, across, bytes / 8) +
                  9 * group_start_seconds(8, across),  // ten layers, a message each
              1e-12);
}

TEST(HybridSharding, OneGroupOfAllIsWhatNoGroupsAre) {
  for (const int zero : {1, 2, 3}) {
    EXPECT_EQ(reduction(sharded(zero, 32, 32)), reduction(sharded(zero, 32, 0)));
    EXPECT_EQ(weights_of(gpt(), {}, whole()).shared(sharded(zero, 32, 32)),
              weights_of(gpt(), {}, whole()).shared(sharded(zero, 32, 0)));
  }
}

TEST(HybridSharding, ADeviceHoldsAsMuchAsInOneGroupAlone) {
  for (const int zero : {1, 2, 3}) {
    const StateBytes groups = state_bytes(gpt(), megatron_core(), sharded(zero, 64, 8), whole()),
                     alone = state_bytes(gpt(), megatron_core(), sharded(zero, 8, 0), whole());
    EXPECT_DOUBLE_EQ(groups.weights, alone.weights);
    EXPECT_DOUBLE_EQ(groups.gradients, alone.gradients);
    EXPECT_DOUBLE_EQ(groups.optimizer, alone.optimizer);
  }
}

TEST(HybridSharding, ExpertsAreDividedAmongTheReplicasOfAGroupThatHoldThem) {
  Architecture model = architecture_preset("mixtral-8x7b");
  ParallelSetup groups = sharded(1, 64, 16), alone = sharded(1, 16, 0);
  groups.experts = alone.experts = 8;
  const LayerRange block{.blocks = blocks_of_kind(kExpertBlock, 1)};
  EXPECT_DOUBLE_EQ(weights_of(model, groups, block).shared(groups),
                   weights_of(model, alone, block).shared(alone));
}

std::string why_not(const Architecture& model, const ParallelSetup& setup) {
  return refusal(model, nvlink_machine("A100", 100e9), setup).value_or(Refusal{}).sentence;
}

TEST(HybridSharding, GroupsThatAreNotEqualAreRefused) {
  EXPECT_EQ(why_not(gpt(), sharded(1, 64, 8)), "");
  EXPECT_EQ(why_not(gpt(), sharded(0, 64, 7)), "");  // nothing is divided
  EXPECT_EQ(why_not(gpt(), sharded(1, 64, 7)),
            "7 replicas are to divide one another's state, which is no divisor of dp = 64; take "
            "one, or leave it out");
  ParallelSetup apart = sharded(1, 64, 4);
  apart.experts = 8;
  EXPECT_EQ(why_not(architecture_preset("mixtral-8x7b"), apart),
            "4 replicas do not hold all that ep = 8 divides; let more of them divide one another's "
            "state, or take less ep");
}

TEST(HybridSharding, ASpaceTriesThemWithZeroOnly) {
  ParallelSpace space;
  space.devices = space.global_batch = 16;
  space.tensor = space.pipeline = space.micro_batch_size = {1};
  space.recompute = {LayerRecompute::None};
  space.zero = {0, 3};
  space.shards = {4, 16};
  std::vector<std::string> seen;
  for_each_setup(gpt(), megatron_core(), space,
                 {[&](const ParallelSetup& setup) { seen.push_back(describe(setup)); },
                  [](LeftOut, const ParallelSetup&) {}});
  const std::string mesh = "tp 1, pp 1, dp 16, micro-batches of 1";
  EXPECT_EQ(seen, (std::vector<std::string>{mesh, mesh + ", ZeRO 3 among 4", mesh + ", ZeRO 3"}));
}

}  // namespace hybrid_sharding_test
}  // namespace pipewright::planner
