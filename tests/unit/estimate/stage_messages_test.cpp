// Messages between neighbours of the pipeline, by hand.
#include <gtest/gtest.h>

#include "planner/estimate/stage_messages.hpp"

namespace pipewright::planner {
namespace stage_messages_test {

/// Two nodes of 4 devices: 10 GB/s inside, 4 GB/s across.
Machine two_nodes() {
  const NodeRates node{device_rates("T4"), 10e9, 4e9};
  return {4, {node, node}};
}

Architecture gpt() { return gpt_architecture("gpt", 1024, 24, 16, 51200, 1024); }

ParallelSetup setup_of(int tensor, int data, int pipeline) {
  ParallelSetup setup;
  setup.tensor = tensor;
  setup.data = data;
  setup.pipeline = pipeline;
  setup.micro_batch_size = 2;
  setup.micro_batches = 8;
  return setup;
}

constexpr double kActivation = 2.0 * 2 * 1024 * 1024;  // of two samples, 16 bits

TEST(BorderSeconds, TakesTheWayThatEachBorderHas) {
  // Four stages of two devices: only the border in the middle leaves the node, two at a time.
  const auto borders = border_seconds(gpt(), megatron_deepspeed(), two_nodes(), setup_of(1, 2, 4));
  ASSERT_EQ(borders.size(), 3u);
  for (const std::size_t inside : {0u, 2u}) {
    EXPECT_DOUBLE_EQ(borders[inside].forward, kNetworkStart + kActivation / 10e9);
    EXPECT_DOUBLE_EQ(borders[inside].backward, borders[inside].forward);
  }
  EXPECT_DOUBLE_EQ(borders[1].forward, kNetworkStart + kActivation / (4e9 / 2));
}

TEST(BorderSeconds, OneMessageHasLessThanARingWhereADeviceHasSeveralLinks) {
  // A100: a fifth of what a ring reaches, and no more where a node's whole network would give more.
  const NodeRates node{device_rates("A100"), 230e9, 200e9};
  ParallelSetup setup = setup_of(1, 1, 8);
  for (const BorderSeconds& border : border_seconds(gpt(), megatron_lm(), {4, {node}}, setup))
    EXPECT_DOUBLE_EQ(border.forward, kNetworkStart + kActivation / 46e9);
  // V100: two of its six links lead to one neighbour. T4: the bus is one way for all.
  setup.pipeline = 2;
  const auto rate_of = [&](const char* device) {
    const Machine machine{4, {{device_rates(device), 120e9, 1e9}}};
    return kActivation /
           (border_seconds(gpt(), megatron_lm(), machine, setup)[0].forward - kNetworkStart);
  };
  EXPECT_NEAR(rate_of("V100"), 40e9, 1);
  EXPECT_NEAR(rate_of("T4"), 120e9, 1);
}

TEST(BorderSeconds, CountsWhatTheFrameworkSends) {
  FrameworkTraits framework = megatron_deepspeed();
  const auto plain = border_seconds(gpt(), framework, two_nodes(), setup_of(2, 2, 2));
  framework.sends_mask = framework.sends_whole_gradients = true;
  const auto more = border_seconds(gpt(), framework, two_nodes(), setup_of(2, 2, 2));
  const double rate = 4e9 / 4;  // four devices at a time
  EXPECT_NEAR(more[0].forward - plain[0].forward, 2.0 * 1024 * 1024 / rate, 1e-12);
  EXPECT_NEAR(more[0].backward - plain[0].backward, kActivation / 2 / rate, 1e-12);
}

TEST(BorderSeconds, HoldsBothEndsOnlyForMessagesLongerThanABuffer) {
  ParallelSetup setup = setup_of(1, 2, 2);
  EXPECT_EQ(border_seconds(gpt(), megatron_deepspeed(), two_nodes(), setup)[0].held, 0);
  setup.micro_batch_size = 4;
  const BorderSeconds longer = border_seconds(gpt(), megatron_deepspeed(), two_nodes(), setup)[0];
  EXPECT_DOUBLE_EQ(longer.held, longer.forward + longer.backward);
}

TEST(PipelineSeconds, AddsMessagesToTheBusiestRankWhereTheDeviceWaits) {
  const ParallelSetup setup = setup_of(1, 2, 2);
  const std::vector<BorderSeconds> borders{{0.1, 0.2, 0.3}};
  FrameworkTraits framework = megatron_core();
  // 8 · 3 + 1 of work, one message each way, and the longer one of each further micro-batch.
  const PipelineSeconds free = pipeline_seconds(framework, setup, {1, 3}, borders);
  EXPECT_NEAR(free.all, 25 + 0.3 + 7 * 0.2, 1e-12);
  framework.waits_for_messages = true;
  const PipelineSeconds waiting = pipeline_seconds(framework, setup, {1, 3}, borders);
  EXPECT_NEAR(waiting.all, 25 + 0.3 + 7 * 0.3, 1e-12);
  EXPECT_NEAR(waiting.transfers, waiting.all - 25, 1e-12);
}

}  // namespace stage_messages_test
}  // namespace pipewright::planner
