#include "planner/estimate/block_kernels.hpp"

#include <utility>

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
    const double at_peak = work.flash_flops / (work.flash_rate * device.product_rate(2));
    const double older = work.flash_rate < 1 ? device.older_flash : 1;
    return {at_peak / (older * device.flash_forward),
            2.5 * at_peak / (older * device.flash_backward)};
  }
  const double scores = slower_unaligned_batch(device, work.scores.depth),
               context = slower_unaligned_batch(device, work.context.columns);
  return {scores * matmul_seconds(device, work.scores) +
              context * matmul_seconds(device, work.context) +
              stream_seconds(device, work.core_traffic),
          scores * matmul_backward_seconds(device, work.scores) +
              context * matmul_backward_seconds(device, work.context) +
              stream_seconds(device, work.core_backward_traffic)};
}

double recomputed_parts_seconds(const DeviceRates& device, const Architecture& model,
                                const FrameworkTraits& framework, const ParallelSetup& setup,
                                bool with_experts) {
  if (setup.recompute.of_all == LayerRecompute::Whole) return 0;
  double seconds = 0;
  if (framework.recomputes_norms) seconds += stream_seconds(device, norm_bytes(model, setup));
  if (framework.recomputes_activations && with_experts) {
    seconds += stream_seconds(device, activation_bytes_of_experts(model, setup));
  }
  if (framework.recomputes_projections && model.latent.is_used()) {
    const BlockWork work = block_work(model, framework, setup, with_experts);
    const int of_queries = model.latent.query_rank > 0 ? 1 : 0,
              of_keys = work.attention_products - 2;
    for (const int p : {of_queries, of_keys})
      seconds += products_seconds(device, work, p, p + 1).forward;
  }
  return seconds;
}

KernelCounts kernel_counts(const Architecture& model, const FrameworkTraits& framework,
                           const ParallelSetup& setup, const BlockWork& work, bool with_experts) {
  if (framework.graphs_steps) return {};
  const double messages = 2 * work.tensor_messages;
  KernelCounts counts{framework.forward_kernels + messages, framework.backward_kernels + messages};
  if (work.unfused_softmax) {  // as many more
    counts.forward += framework.attention_core_kernels;
    counts.backward += 2 * framework.attention_core_kernels;
  }
  if (!with_experts) return counts;
  // Each expert's products are kernels of their own (Transformer Engine, GroupedLinear), and what
  // goes into products of 8 bits is converted expert by expert.
  const double here =
      framework.groups_experts ? 1 : static_cast<double>(model.experts.count) / setup.experts;
  const double products = 2 * here * (framework.product_bytes < 2 ? 2 : 1);
  if (framework.graphs_routing) {
    counts = {kGraphsOfRouting + kKernelsOutsideGraphs,
              kGraphsOfRouting + 2 * kKernelsOutsideGraphs};
  } else {
    counts.forward += framework.expert_kernels;
    counts.backward += framework.expert_kernels;
  }
  counts.forward_in_loops = products;
  counts.backward_in_loops = 2 * products;
  return counts;
}

double host_seconds(const FrameworkTraits& framework, double kernels) {
  return framework.graphs_steps ? 0 : framework.launch_seconds * kernels;
}

bool waits_for_group(const ParallelSetup& setup, bool with_experts) {
  return setup.tensor > 1 || (with_experts && setup.experts > 1);
}

double overlap_order(const FrameworkTraits& framework, bool waits) {
  if (framework.blocking_launches) return 1;
  return waits ? kOverlapOrderOfGroups : kOverlapOrder;
}

BlockMessages message_seconds(const NodeRates& node, int devices_per_node,
                              const ParallelSetup& setup, const BlockWork& work) {
  const Group tensor{setup.tensor, 1}, context{setup.context, setup.tensor},
      experts{setup.experts, setup.expert_tensor()};
  MessageSeconds one;
  if (setup.sequence_parallel) {
    one.tensor.fill(gather_seconds(node, devices_per_node, tensor, work.tensor_message));
    one.tensor[0] = one.tensor[2] =
        gather_seconds(node, devices_per_node, tensor, work.gathered_message);
    if (work.expert_parameters > 0) {
      one.tensor[2] = one.tensor[3] =
          gather_seconds(node, devices_per_node, tensor, work.tensor_message_of_experts);
    }
  } else {
    one.tensor[1] = one.tensor[3] =
        all_reduce_seconds(node, devices_per_node, tensor, work.tensor_message);
  }
  one.experts = 2 * all_to_all_seconds(node, devices_per_node, experts, work.expert_message);
  one.context = all_to_all_seconds(node, devices_per_node, context, work.context_message);
  BlockMessages sent{one, one};
  if (work.expert_parameters > 0) {  // backward begins with them
    std::swap(sent.backward.tensor[0], sent.backward.tensor[2]);
    std::swap(sent.backward.tensor[1], sent.backward.tensor[3]);
  }
  return sent;
}

}  // namespace pipewright::planner
