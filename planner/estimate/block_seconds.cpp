// From a block's work to its time on one rank.
#include <algorithm>

#include "planner/estimate/adapters.hpp"
#include "planner/estimate/exposed_messages.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

namespace {

/// Of the way into the host's memory and back, what a block's own work does not hide; the mean of
/// all blocks.
double exposed_offload_seconds(const Architecture& model, const FrameworkTraits& framework,
                               const DeviceRates& device, const ParallelSetup& setup,
                               BlockKind kind, double beside) {
  const double share = offloaded_share(model, framework, setup);
  if (share == 0) return 0;
  const double bytes = saved_bytes(model, framework, setup, kind, setup.recompute.of_all);
  return share * std::max(0.0, bytes / device.host_bytes_per_second - beside);
}

}  // namespace

BlockSeconds block_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const NodeRates& node, int devices_per_node, const ParallelSetup& setup,
                           BlockKind kind) {
  const BlockWork work = block_work(model, framework, setup, kind);
  const DeviceRates& device = node.device;
  const KernelSeconds linear = products_seconds(device, work, 0, work.products_used) +
                               adapter_seconds(device, work, 0, work.products_used),
                      core = mixer_core_seconds(device, work);
  BlockMessages sent = exposed_messages(framework, node, devices_per_node, setup, work);
  double forward = linear.forward + core.forward + stream_seconds(device, work.forward_traffic);
  double backward = linear.backward + core.backward + stream_seconds(device, work.backward_traffic);
  if (framework.hides_expert_messages) {
    sent.forward.experts = std::max(0.0, sent.forward.experts - forward);
    sent.backward.experts = std::max(0.0, sent.backward.experts - backward);
  }
  forward += sent.forward.sum();
  backward += sent.backward.sum();
  const KernelCounts kernels = kernel_counts(model, framework, setup, work);
  const double host_forward =
      host_seconds(framework, kernels.forward) + kLaunchInLoop * kernels.forward_in_loops;
  double host_backward =
      host_seconds(framework, kernels.backward) + kLaunchInLoop * kernels.backward_in_loops;
  const double order = overlap_order(framework, waits_for_group(setup, kind.has_experts()));
  // The products of W are the same, whatever else is computed again.
  const double adding = framework.fuses_accumulation
                            ? 0
                            : stream_seconds(device, work.parameters * framework.accumulate_bytes);
  const double weight =
      with_launches(backward, host_backward, order) * (linear.weight + adding) / backward;
  // Times that a forward's messages are sent, with the recomputed ones.
  double forwards = 1, of_tensor = 1;
  backward += recomputed_parts_seconds(device, model, framework, setup, kind);
  if (setup.recompute.of_all == LayerRecompute::Whole) {
    const LeftOutOfRecompute left_out = left_out_of_recompute(device, framework, work);
    backward += forward - left_out.sum() - left_out.returned * sent.forward.experts;
    host_backward += host_forward;
    forwards = of_tensor = 2;
  } else if (selects_operators(framework, setup.recompute.of_all)) {
    // Scatters are kept, and all other messages sent again.
    forwards = 2;
    of_tensor = setup.sequence_parallel ? 1.5 : 2;
    backward += operators_again(device, model, work).sum() +
                stream_seconds(device, work.forward_traffic) + sent.forward.experts +
                sent.forward.context + (of_tensor - 1) * sent.forward.of_tensor();
    host_backward += host_forward;
  } else if (setup.recompute.of_all == LayerRecompute::Attention && kind.has_attention()) {
    backward += core.forward;
    host_backward += host_seconds(framework, framework.attention_core_kernels);
  }
  const auto with_offload = [&](double seconds) {
    return seconds + exposed_offload_seconds(model, framework, device, setup, kind, seconds);
  };
  const double whole = with_launches(backward, host_backward, order);
  const double below = backward_below_adapters(device, work);
  return {with_offload(with_launches(forward, host_forward, order)),
          with_offload(whole),
          weight,
          whole - with_launches(backward - below, host_backward, order),
          of_tensor * sent.forward.of_tensor() + sent.backward.of_tensor(),
          forwards * sent.forward.experts + sent.backward.experts,
          forwards * sent.forward.context + sent.backward.context};
}

}  // namespace pipewright::planner
