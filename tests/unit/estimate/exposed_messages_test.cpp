// What products hide of tensor parallel messages, by hand.
#include "planner/estimate/exposed_messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace pipewright::planner {
namespace exposed_messages_test {

constexpr int kRanks = 4;

Architecture gpt() { return gpt_architecture("gpt", 4096, 24, 32, 51200, 2048); }

ParallelSetup setup_of(bool sequence_parallel) {
  ParallelSetup setup;
  setup.tensor = kRanks;
  setup.micro_batches = 8;
  setup.sequence_parallel = sequence_parallel;
  return setup;
}

FrameworkTraits plain() {
  FrameworkTraits framework = megatron_core();
  framework.hides_gradient_messages = framework.chunks_messages = false;
  return framework;
}

/// Messages and products of a block, whose links are so fast.
struct Block {
  Block(double bytes_per_second, bool sequence_parallel)
      : setup(setup_of(sequence_parallel)),
        node{device_rates("H100"), bytes_per_second, 50e9},
        work(block_work(gpt(), megatron_core(), setup, kDenseBlock)),
        sent(message_seconds(node, kRanks, setup, work)) {}

  BlockMessages exposed(const FrameworkTraits& framework) const {
    return exposed_messages(framework, node, kRanks, setup, work);
  }
  KernelSeconds product(int which) const {
    return products_seconds(node.device, work, which, which + 1);
  }
  double input_gradient(int which) const { return product(which).backward - product(which).weight; }

  ParallelSetup setup;
  NodeRates node;
  BlockWork work;
  BlockMessages sent;
};

enum Product { kQueriesKeysValues, kOutput, kUp, kDown };

double beyond(double message, double product) { return std::max(0.0, message - product); }

TEST(ExposedMessages, KeysAndValuesGoRoundARingBesideTheScores) {
  ParallelSetup setup;
  setup.context = 2;
  // 2,048 of 4,096 tokens: keys and values of 4,096 numbers each, 32 MiB.
  Architecture model = gpt();
  model.sequence = 4096;
  const double message = 2 * 2048 * 2 * 4096.0;
  const BlockWork work = block_work(model, megatron_core(), setup, kDenseBlock);
  EXPECT_EQ(work.ring_message, message);
  const auto context = [&](const FrameworkTraits& framework, double bytes_per_second) {
    const NodeRates node{device_rates("H100"), bytes_per_second, 50e9};
    const BlockMessages sent = exposed_messages(framework, node, 8, setup, work);
    return std::pair{sent.forward.context, sent.backward.context};
  };
  // One message of two parts; half of the scores are computed meanwhile. Back it is twice as much.
  const KernelSeconds core = mixer_core_seconds(device_rates("H100"), work);
  const double once = 30e-6 + message / 1e9;
  EXPECT_NEAR(context(megatron_core(), 1e9).first, once - core.forward / 2, 1e-12);
  EXPECT_NEAR(context(megatron_core(), 1e9).second, 2 * once - core.backward / 2, 1e-12);
  EXPECT_EQ(context(megatron_core(), 4e12), (std::pair{0.0, 0.0}));
  EXPECT_GT(context(plain(), 4e12).first, 0);  // an all-to-all, beside nothing
}

TEST(ExposedMessages, AreAllMessagesWhereTheFrameworkHidesNone) {
  for (const bool sequence_parallel : {false, true}) {
    const Block block(20e9, sequence_parallel);
    EXPECT_EQ(block.exposed(plain()).forward.tensor, block.sent.forward.tensor);
    EXPECT_EQ(block.exposed(plain()).backward.tensor, block.sent.backward.tensor);
  }
}

TEST(ExposedMessages, OfGradientsGoBesideTheProductsThatGiveThoseOfWeights) {
  const FrameworkTraits framework = megatron_core();
  for (const double rate : {1e9, 20e9, 360e9}) {
    const Block block(rate, false);
    const BlockMessages exposed = block.exposed(framework);
    EXPECT_EQ(exposed.forward.tensor, block.sent.forward.tensor);
    const std::array<double, 4>&whole = block.sent.backward.tensor, &left = exposed.backward.tensor;
    EXPECT_EQ(left[0], 0);  // nothing is gathered
    EXPECT_DOUBLE_EQ(left[1], beyond(whole[1], block.product(kUp).weight));
    EXPECT_EQ(left[2], 0);
    EXPECT_DOUBLE_EQ(left[3], beyond(whole[3], block.product(kQueriesKeysValues).weight));
  }
}

TEST(ExposedMessages, OfSequenceParallelismHaveInputsGatheredAgain) {
  for (const double rate : {1e9, 20e9, 360e9}) {
    const Block block(rate, true);
    const std::array<double, 4>&whole = block.sent.backward.tensor,
                             &left = block.exposed(megatron_core()).backward.tensor;
    const double again = block.sent.forward.tensor[0];
    EXPECT_DOUBLE_EQ(left[0], whole[0]);  // the products behind it wait for it
    EXPECT_DOUBLE_EQ(left[1], beyond(whole[1], block.product(kUp).weight) +
                                  beyond(again, block.input_gradient(kUp)));
    EXPECT_DOUBLE_EQ(left[2], whole[2]);
    EXPECT_DOUBLE_EQ(left[3], beyond(whole[3], block.product(kQueriesKeysValues).weight) +
                                  beyond(again, block.input_gradient(kQueriesKeysValues)));
  }
}

TEST(ExposedMessages, InChunksLeaveOneChunksProductUncovered) {
  const double most = (kRanks - 1.0) / kRanks;
  for (const double rate : {1e9, 20e9, 360e9}) {
    const Block block(rate, true);
    const BlockMessages exposed = block.exposed(nemo());
    for (const int which : {kQueriesKeysValues, kOutput, kUp, kDown}) {
      const auto place = static_cast<std::size_t>(which);
      EXPECT_DOUBLE_EQ(exposed.forward.tensor[place], beyond(block.sent.forward.tensor[place],
                                                             most * block.product(which).forward));
    }
    EXPECT_DOUBLE_EQ(exposed.backward.tensor[0],
                     beyond(block.sent.backward.tensor[0], most * block.input_gradient(kDown)));
    EXPECT_DOUBLE_EQ(exposed.backward.tensor[2],
                     beyond(block.sent.backward.tensor[2], most * block.input_gradient(kOutput)));
  }
}

TEST(ExposedMessages, AllReducesHaveNoChunks) {
  const Block block(20e9, false);
  EXPECT_EQ(block.exposed(nemo()).forward.tensor, block.sent.forward.tensor);
}

}  // namespace exposed_messages_test
}  // namespace pipewright::planner
