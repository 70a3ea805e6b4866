// Messages of tensor parallel ranks in a block.
#include <gtest/gtest.h>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {
namespace tensor_messages_test {

Architecture gpt() { return gpt_architecture("gpt", 4096, 8, 32, 51200, 2048); }

ParallelSetup divided(int tensor, bool sequence) {
  ParallelSetup setup;
  setup.tensor = tensor;
  setup.sequence_parallel = sequence;
  return setup;
}

BlockMessages messages_of(const ParallelSetup& setup) {
  const NodeRates node = nvlink_machine("H100", 400e9).nodes.front();
  return message_seconds(node, 8, setup, block_work(gpt(), megatron_core(), setup, kDenseBlock));
}

TEST(TensorMessages, GathersAndScattersReplaceAnAllReduceOfTheSameBytes) {
  const MessageSeconds reduced = messages_of(divided(4, false)).forward;
  const MessageSeconds parts = messages_of(divided(4, true)).forward;
  const double start = group_start_seconds(8, {4, 1});
  // As many bytes, and a start for each of the four in place of two.
  EXPECT_NEAR(parts.of_tensor(), reduced.of_tensor() + 2 * start, 1e-12);
}

}  // namespace tensor_messages_test
}  // namespace pipewright::planner
