// From a block's work to its time on one rank.
#include "planner/estimate/exposed_messages.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

BlockSeconds block_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const NodeRates& node, int devices_per_node, const ParallelSetup& setup,
                           bool with_experts) {
  const BlockWork work = block_work(model, framework, setup, with_experts);
  const DeviceRates& device = node.device;
  const KernelSeconds linear = products_seconds(device, work, 0, work.products_used),
                      core = attention_core_seconds(device, work);
  const BlockMessages sent = exposed_messages(framework, node, devices_per_node, setup, work);
  const double forward = linear.forward + core.forward +
                         stream_seconds(device, work.forward_traffic) + sent.forward.sum();
  double backward = linear.backward + core.backward +
                    stream_seconds(device, work.backward_traffic) + sent.backward.sum();
  int kernels = framework.backward_kernels + 2 * work.tensor_messages;
  const double launch = framework.launch_seconds;
  const double order = setup.tensor > 1 ? kOverlapOrderOfGroups : kOverlapOrder;
  // The products of W are the same, whatever else is computed again.
  const double weight =
      with_launches(backward, launch * kernels, order) *
      (linear.weight + stream_seconds(device, work.parameters * framework.accumulate_bytes)) /
      backward;
  double forwards = 1;  // times that a forward's messages are sent, with the recomputed ones
  if (setup.recompute.of_all == LayerRecompute::Whole) {
    backward += forward;
    kernels += framework.forward_kernels + 2 * work.tensor_messages;
    forwards = 2;
  } else if (setup.recompute.of_all == LayerRecompute::Attention) {
    backward += core.forward;
    kernels += framework.attention_core_kernels;
  }
  return {with_launches(forward, launch * (framework.forward_kernels + 2 * work.tensor_messages),
                        order),
          with_launches(backward, launch * kernels, order),
          weight,
          forwards * sent.forward.of_tensor() + sent.backward.of_tensor(),
          forwards * sent.forward.experts + sent.backward.experts,
          forwards * sent.forward.context + sent.backward.context};
}

}  // namespace pipewright::planner
