#include "planner/estimate/block_kernels.hpp"

namespace pipewright::planner {

KernelSeconds products_seconds(const DeviceRates& device, const BlockWork& work, int first,
                               int end) {
  KernelSeconds sum;
  for (int p = first; p < end; ++p) {
    const Matmul& matmul = work.products[static_cast<std::size_t>(p)];
    sum.forward += matmul_seconds(device, matmul);
    sum.backward += matmul_backward_seconds(device, matmul);
    sum.weight += matmul_weight_seconds(device, matmul);
  }
  return sum;
}

KernelSeconds attention_core_seconds(const DeviceRates& device, const BlockWork& work) {
  if (work.flash_flops > 0) {
    // Backward computes the scores again: five products for the forward's two.
    const double at_peak = work.flash_flops / (device.peak_flops * device.matmul_efficiency);
    return {at_peak / kFlashForward, 2.5 * at_peak / kFlashBackward};
  }
  const double scores = slower_unaligned(work.scores.depth),
               context = slower_unaligned(work.context.columns);
  return {scores * matmul_seconds(device, work.scores) +
              context * matmul_seconds(device, work.context) +
              stream_seconds(device, work.core_traffic),
          scores * matmul_backward_seconds(device, work.scores) +
              context * matmul_backward_seconds(device, work.context) +
              stream_seconds(device, work.core_backward_traffic)};
}

MessageSeconds message_seconds(const NodeRates& node, int devices_per_node,
                               const ParallelSetup& setup, const BlockWork& work) {
  const Group tensor{setup.tensor, 1}, context{setup.context, setup.tensor},
      experts{setup.experts, setup.tensor};
  return {work.tensor_messages *
                  all_reduce_seconds(node, devices_per_node, tensor, work.tensor_message) +
              (setup.sequence_parallel  // a scatter and a gather for each: one more start
                   ? work.tensor_messages * group_start_seconds(devices_per_node, tensor)
                   : 0),
          2 * all_to_all_seconds(node, devices_per_node, experts, work.expert_message),
          all_to_all_seconds(node, devices_per_node, context, work.context_message)};
}

}  // namespace pipewright::planner
