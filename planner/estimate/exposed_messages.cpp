#include "planner/estimate/exposed_messages.hpp"

#include <algorithm>

namespace pipewright::planner {
namespace {

/// A half of a block: what enters it goes into some products, what leaves it comes from the last.
struct Half {
  KernelSeconds entering, leaving;
  bool is_frozen = false;
};

double input_gradient(const KernelSeconds& kernels) { return kernels.backward - kernels.weight; }

class Overlap {
 public:
  Overlap(const FrameworkTraits& framework, const ParallelSetup& setup)
      : framework_(framework), setup_(setup), others_(setup.tensor - 1) {}

  void forward(const Half& half, double& entering, double& leaving) const {
    entering = beside_chunks(entering, half.entering.forward);
    leaving = beside_chunks(leaving, half.leaving.forward);
  }

  /// `gathered`: the half's input, which W wants again.
  void backward(const Half& half, double gathered, double& entering, double& leaving) const {
    entering = beside_chunks(entering, input_gradient(half.leaving));
    if (half.is_frozen) {  // no gradient of weights to hide it, or to gather for
      leaving = beside_chunks(leaving, input_gradient(half.entering));
      return;
    }
    if (!framework_.hides_gradient_messages) return;
    leaving = std::max(0.0, leaving - half.entering.weight);
    if (setup_.sequence_parallel)
      leaving += std::max(0.0, gathered - input_gradient(half.entering));
  }

 private:
  /// While a rank multiplies one of n chunks, the next one moves: all but one chunk's product hides
  /// messages. An all-reduce has no chunks that are done.
  double beside_chunks(double message, double product) const {
    if (!framework_.chunks_messages || !setup_.sequence_parallel) return message;
    return std::max(0.0, message - product * others_ / (others_ + 1));
  }

  const FrameworkTraits& framework_;
  const ParallelSetup& setup_;
  const double others_;
};

/// Megatron core sends keys and values round a ring of the context parallel ranks, each part beside
/// the scores of the one before (cp_comm_type "p2p", its default; Transformer Engine, attention):
/// forward both, backward both and their gradients.
void send_round_ring(BlockMessages& sent, const NodeRates& node, int devices_per_node,
                     const ParallelSetup& setup, const BlockWork& work) {
  const Group ring{setup.context, setup.tensor};
  const double others = setup.context - 1, beside = others / setup.context;
  const double once =
      kNetworkStart + work.ring_message / group_bytes_per_second(node, devices_per_node, ring);
  const KernelSeconds core = mixer_core_seconds(node.device, work);
  sent.forward.context = std::max(0.0, others * once - beside * core.forward);
  sent.backward.context = std::max(0.0, 2 * others * once - beside * core.backward);
}

}  // namespace

BlockMessages exposed_messages(const FrameworkTraits& framework, const NodeRates& node,
                               int devices_per_node, const ParallelSetup& setup,
                               const BlockWork& work) {
  BlockMessages sent = message_seconds(node, devices_per_node, setup, work);
  if (framework.blocking_launches) return sent;
  if (work.ring_message > 0 && framework.hides_gradient_messages)
    send_round_ring(sent, node, devices_per_node, setup, work);
  const bool hides = framework.hides_gradient_messages || framework.chunks_messages;
  if (setup.tensor == 1 || !hides) return sent;
  const bool experts = work.expert_parameters > 0;
  const int out = work.mixer_products - 1, last = work.products_used - 1;
  const Overlap overlap(framework, setup);
  const auto seconds = [&](int first, int end) {
    return products_seconds(node.device, work, first, end);
  };
  const MessageSeconds whole = sent.forward;
  std::array<double, 4>&to = sent.forward.tensor, &back = sent.backward.tensor;
  if (work.kind.mixer != Mixer::None) {
    const Half mixer{seconds(0, out), seconds(out, out + 1), work.is_frozen};
    overlap.forward(mixer, to[0], to[1]);
    overlap.backward(mixer, whole.tensor[0], back[2], back[3]);
  }
  // The products of experts are many small ones.
  if (experts || work.kind.feed_forward == FeedForward::None) return sent;
  const Half feed_forward{seconds(out + 1, last), seconds(last, last + 1), work.is_frozen};
  overlap.forward(feed_forward, to[2], to[3]);
  overlap.backward(feed_forward, whole.tensor[2], back[0], back[1]);
  return sent;
}

}  // namespace pipewright::planner
