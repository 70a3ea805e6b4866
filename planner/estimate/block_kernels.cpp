#include "planner/estimate/block_kernels.hpp"

#include <algorithm>
#include <utility>

#include "planner/estimate/adapters.hpp"

namespace pipewright::planner {
namespace {

/// Over its forward. Backward of an attention or a scan computes the scores or states again: five
/// products for the forward's two.
constexpr double kBackwardOfMixer = 2.5;

}  // namespace

KernelSeconds products_seconds(const DeviceRates& device, const BlockWork& work, int first,
                               int end) {
  KernelSeconds sum;
  for (int p = first; p < end; ++p) {
    const Matmul& matmul = work.products[static_cast<std::size_t>(p)];
    sum.forward += matmul_seconds(device, matmul);
    sum.backward += matmul_input_seconds(device, matmul);
    if (work.is_frozen) continue;
    const double weight = matmul_weight_seconds(device, matmul);
    sum.backward += weight;
    sum.weight += weight;
  }
  return sum;
}

KernelSeconds mixer_core_seconds(const DeviceRates& device, const BlockWork& work) {
  if (work.scan_flops > 0) {
    const double once = work.scan_flops / (kScanRate * device.multiprocessors) +
                        stream_seconds(device, work.scan_traffic);
    return {once, kBackwardOfMixer * once};
  }
  if (work.flash_flops > 0) {
    const double at_peak = work.flash_flops / (work.flash_rate * device.product_rate(2));
    const double older = work.flash_rate < 1 ? device.older_flash : 1;
    return {at_peak / (older * device.flash_forward),
            kBackwardOfMixer * at_peak / (older * device.flash_backward)};
  }
  if (work.scores.rows == 0) return {};
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
                                BlockKind kind) {
  if (setup.recompute.of_all == LayerRecompute::Whole) return 0;
  double seconds = 0;
  if (framework.recomputes_norms) seconds += stream_seconds(device, norm_bytes(model, setup, kind));
  if (framework.recomputes_activations && kind.has_experts()) {
    seconds += stream_seconds(device, activation_bytes_of_experts(model, setup));
  }
  if (framework.recomputes_projections && model.latent.is_used() && kind.has_attention()) {
    const BlockWork work = block_work(model, framework, setup, kind);
    const int of_queries = model.latent.query_rank > 0 ? 1 : 0, of_keys = work.mixer_products - 2;
    for (const int p : {of_queries, of_keys})
      seconds += products_seconds(device, work, p, p + 1).forward;
  }
  return seconds;
}

LeftOutOfRecompute left_out_of_recompute(const DeviceRates& device,
                                         const FrameworkTraits& framework, const BlockWork& work) {
  const bool experts = work.kind.has_experts();
  const int out = work.mixer_products - 1, last = work.products_used - (experts ? 2 : 1);
  const auto forward = [&](bool is_left_out, int from, int end) {
    return is_left_out ? products_seconds(device, work, from, end).forward : 0;
  };
  const bool attends = work.kind.has_attention();
  return {forward(framework.keeps_queries && attends, 0, out),
          forward(framework.keeps_mixed && attends, out, out + 1),
          forward(framework.skips_last_product && work.kind.feed_forward != FeedForward::None, last,
                  last + 1),
          framework.skips_last_product && experts ? 0.5 : 0};
}

OperatorsAgain operators_again(const DeviceRates& device, const Architecture& model,
                               const BlockWork& work) {
  const int out = work.mixer_products - 1;
  const auto forward = [&](int from, int end) {
    return products_seconds(device, work, from, std::max(from, end)).forward;
  };
  OperatorsAgain again{forward(0, out), out < 0 ? 0 : forward(out, out + 1),
                       forward(out + 1, work.products_used)};
  const double keys = static_cast<double>(model.key_value_heads);
  again.entering *= model.latent.is_used() ? 0.5 : keys / (model.heads + 2 * keys);
  const bool is_dense = work.kind.feed_forward == FeedForward::Dense;
  if (is_dense) again.feed_forward = (model.gated ? 0.5 : 0) * forward(out + 1, out + 2);
  return again;
}

KernelCounts kernel_counts(const Architecture& model, const FrameworkTraits& framework,
                           const ParallelSetup& setup, const BlockWork& work) {
  if (framework.graphs_steps) return {};
  const double messages = 2 * work.tensor_messages;
  const double halves = work.kind.parts() / 2.0;
  KernelCounts counts{halves * framework.forward_kernels + messages,
                      halves * framework.backward_kernels + messages};
  if (work.is_frozen) {
    const AdapterCalls calls = adapter_calls(setup, work);
    // Experts' products are counted below.
    const int gradients = work.products_used - (work.kind.has_experts() ? 2 : 0);
    counts.forward += kAdapterForwardKernels * work.adapters_used + 2 * calls.forward;
    counts.backward +=
        kAdapterBackwardKernels * work.adapters_used + 2 * calls.backward - gradients;
  }
  if (work.unfused_softmax) {  // as many more
    counts.forward += framework.attention_core_kernels;
    counts.backward += 2 * framework.attention_core_kernels;
  }
  const bool graphs = framework.graphs_routing && model.experts.count > 0 &&
                      work.kind.feed_forward != FeedForward::Dense;
  if (graphs) {  // one of the mixer, one of router and sorting
    const double outside = work.kind.has_experts() ? kKernelsOutsideGraphs : 0;
    counts = {work.kind.parts() + outside, work.kind.parts() + 2 * outside};
  }
  if (!work.kind.has_experts()) return counts;
  // Each expert's products are kernels of their own (Transformer Engine, GroupedLinear), and what
  // goes into products of 8 bits is converted expert by expert.
  const double here =
      framework.groups_experts ? 1 : static_cast<double>(model.experts.count) / setup.experts;
  const double products = 2 * here * (framework.product_bytes < 2 ? 2 : 1);
  if (!graphs) {
    counts.forward += framework.expert_kernels;
    counts.backward += framework.expert_kernels;
  }
  counts.forward_in_loops = products;
  counts.backward_in_loops = (work.is_frozen ? 1 : 2) * products;
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

namespace {

/// A token that is sent once goes to each node that holds some of its experts, and inside it on to
/// their devices (DeepEP and HybridEP).
double expert_message_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                              const BlockWork& work) {
  if (work.token_message == 0)
    return all_to_all_seconds(node, devices_per_node, group, work.expert_message);
  const int nodes = group.nodes(devices_per_node);
  const double others = static_cast<double>(nodes - 1) / nodes;
  return forwarded_seconds(
      node, devices_per_node, group, work.expert_message,
      others * work.token_message * places_of_token(work.experts, nodes, work.routed_in_turn));
}

}  // namespace

BlockMessages message_seconds(const NodeRates& node, int devices_per_node,
                              const ParallelSetup& setup, const BlockWork& work) {
  const Group tensor{setup.tensor, 1}, context{setup.context, setup.tensor},
      experts{setup.experts, setup.expert_tensor()};
  const bool mixes = work.kind.mixer != Mixer::None,
             feeds = work.kind.feed_forward != FeedForward::None;
  MessageSeconds one;
  const auto gather = [&](double bytes) {
    return gather_seconds(node, devices_per_node, tensor, bytes);
  };
  if (setup.sequence_parallel) {
    const double scattered = gather(work.tensor_message), gathered = gather(work.gathered_message);
    if (mixes) one.tensor[0] = gathered, one.tensor[1] = scattered;
    if (feeds) one.tensor[2] = gathered, one.tensor[3] = scattered;
    if (work.expert_parameters > 0)
      one.tensor[2] = one.tensor[3] = gather(work.tensor_message_of_experts);
  } else {
    const double reduced = all_reduce_seconds(node, devices_per_node, tensor, work.tensor_message);
    if (mixes) one.tensor[1] = reduced;
    if (feeds) one.tensor[3] = reduced;
  }
  one.experts = 2 * expert_message_seconds(node, devices_per_node, experts, work);
  one.context = all_to_all_seconds(node, devices_per_node, context, work.context_message);
  BlockMessages sent{one, one};  // backward begins with the feed-forward part
  std::swap(sent.backward.tensor[0], sent.backward.tensor[2]);
  std::swap(sent.backward.tensor[1], sent.backward.tensor[3]);
  const AdapterSeconds adapters = adapter_messages(node, devices_per_node, setup, work);
  sent.forward.adapters = adapters.forward;
  sent.backward.adapters = adapters.backward;
  return sent;
}

}  // namespace pipewright::planner
