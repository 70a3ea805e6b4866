// From a block's work to its time on one rank.
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

namespace {

struct Parts {
  double forward = 0, backward = 0;
  double weight = 0;  // of `backward`
};

Parts products(const DeviceRates& device, const BlockWork& work) {
  Parts sum;
  for (int p = 0; p < work.products_used; ++p) {
    const Matmul& matmul = work.products[static_cast<std::size_t>(p)];
    sum.forward += matmul_seconds(device, matmul);
    sum.backward += matmul_backward_seconds(device, matmul);
    sum.weight += matmul_weight_seconds(device, matmul);
  }
  return sum;
}

Parts attention_core(const DeviceRates& device, const BlockWork& work) {
  if (work.flash_flops > 0) {
    // Backward computes the scores again: five products for the forward's two.
    const double at_peak = work.flash_flops / (device.peak_flops * device.matmul_efficiency);
    return {at_peak / kFlashForward, 2.5 * at_peak / kFlashBackward};
  }
  return {matmul_seconds(device, work.scores) + matmul_seconds(device, work.context) +
              stream_seconds(device, work.core_traffic),
          matmul_backward_seconds(device, work.scores) +
              matmul_backward_seconds(device, work.context) +
              stream_seconds(device, work.core_backward_traffic)};
}

}  // namespace

BlockSeconds block_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const NodeRates& node, int devices_per_node, const ParallelSetup& setup,
                           bool with_experts) {
  const BlockWork work = block_work(model, framework, setup, with_experts);
  const DeviceRates& device = node.device;
  const Parts linear = products(device, work), core = attention_core(device, work);
  const Group tensor{setup.tensor, 1}, context{setup.context, setup.tensor},
      experts{setup.experts, setup.tensor};
  const double tensor_time =
      work.tensor_messages * all_reduce_seconds(node, devices_per_node, tensor,
                                                work.tensor_message) +
      (setup.sequence_parallel  // a scatter and a gather for each: one more start
           ? work.tensor_messages * group_start_seconds(devices_per_node, tensor)
           : 0);
  const double expert_time =
      2 * all_to_all_seconds(node, devices_per_node, experts, work.expert_message);
  const double context_time =
      all_to_all_seconds(node, devices_per_node, context, work.context_message);
  const double messages = tensor_time + expert_time + context_time;
  const double forward =
      linear.forward + core.forward + stream_seconds(device, work.forward_traffic) + messages;
  double backward =
      linear.backward + core.backward + stream_seconds(device, work.backward_traffic) + messages;
  int kernels = framework.backward_kernels + 2 * work.tensor_messages;
  const double launch = framework.launch_seconds;
  const double order = setup.tensor > 1 ? kOverlapOrderOfGroups : kOverlapOrder;
  // The products of W are the same, whatever else is computed again.
  const double weight =
      with_launches(backward, launch * kernels, order) *
      (linear.weight + stream_seconds(device, work.parameters * framework.accumulate_bytes)) /
      backward;
  double again = 1;  // times that the messages of one direction are sent, with the recomputed ones
  if (setup.recompute.of_all == LayerRecompute::Whole) {
    backward += forward;
    kernels += framework.forward_kernels + 2 * work.tensor_messages;
    again = 2;
  } else if (setup.recompute.of_all == LayerRecompute::Attention) {
    backward += core.forward;
    kernels += framework.attention_core_kernels;
  }
  return {with_launches(forward, launch * (framework.forward_kernels + 2 * work.tensor_messages),
                        order),
          with_launches(backward, launch * kernels, order),
          weight,
          (1 + again) * tensor_time,
          (1 + again) * expert_time,
          (1 + again) * context_time};
}

}  // namespace pipewright::planner
