// Bytes of a rank: what stays, what micro-batches in flight keep, what passes.
#include <algorithm>

#include "planner/estimate/step_estimate.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {

namespace {

/// Chunks whose activations rank r holds at most under (interleaved) 1F1B: its forwards before the
/// first backward, and one (arXiv:2104.04473 §2.2).
int chunks_in_flight(const ParallelSetup& setup, int rank) {
  const int m = setup.micro_batches, p = setup.pipeline, v = setup.chunks;
  if (v == 1) return std::min(m, p - rank);
  return std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1);
}

}  // namespace

StateBytes state_bytes(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup, const LayerRange& range) {
  const RangeWeights weights = weights_of(model, setup, range);
  const double shared = weights.shared(setup);
  // Of NVFP4 both layouts lie beside the 16-bit weights (Megatron-Bridge, mixed_precision.py:
  // fp8_param_gather is off).
  const double copies = framework.product_bytes < 1 ? 2 * framework.product_bytes : 0;
  return {(2 + copies) * (setup.zero >= 3 ? shared : weights.all),
          framework.gradient_bytes * (setup.zero >= 2 ? shared : weights.all),
          framework.state_bytes * (setup.zero >= 1 ? shared : weights.all)};
}

double embedding_kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                            const ParallelSetup& setup) {
  const BlockSizes sizes = block_sizes(model, setup);
  return framework.dropout ? sizes.rows * model.hidden / sizes.outside : 0;
}

double head_kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup) {
  const BlockSizes sizes = block_sizes(model, setup);
  const double logits = sizes.rows * model.vocabulary / setup.tensor;
  // 32-bit logits; a fused loss keeps 16-bit ones and writes the gradient over them.
  const double each = framework.fused_loss ? 2 : 4;
  return 4 * sizes.rows * model.hidden / sizes.outside + each * logits;
}

namespace {

/// Transformer Engine hands autograd an empty 16-bit gradient of each shape of weight while it adds
/// the real one to the 32-bit gradient, and keeps it: once for each shape on the rank.
double weight_buffers(const Architecture& model, const FrameworkTraits& framework,
                      const ParallelSetup& setup, const LayerRange& range) {
  double numbers = 0;
  const auto add = [&](bool experts, bool with_attention) {
    const BlockWork work = block_work(model, framework, setup, experts);
    const int from = with_attention ? 0 : work.attention_products;
    const int end = work.products_used - (experts ? 1 : 0);  // the router is not one of its layers
    for (int p = from; p < end; ++p) {
      const Matmul& product = work.products[static_cast<std::size_t>(p)];
      numbers += product.columns * product.depth;
    }
  };
  if (range.dense > 0) add(false, true);
  if (range.with_experts > 0) add(true, range.dense == 0);
  if (range.head) numbers += static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  return 2 * numbers;
}

}  // namespace

double passing_bytes(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, const LayerRange& range) {
  const bool experts = range.with_experts > 0;
  const double buffers =
      framework.keeps_weight_buffers ? weight_buffers(model, framework, setup, range) : 0;
  if (range.dense + range.with_experts == 0) return buffers;
  if (setup.recompute.of_all == LayerRecompute::Whole) {
    return buffers + saved_bytes(model, framework, setup, experts, LayerRecompute::None);
  }
  if (!framework.keeps_weight_buffers) return 0;
  const BlockSizes sizes = block_sizes(model, setup);
  const double gates = model.gated ? 2 : 1;
  const double inner = experts
                           ? sizes.rows * model.experts.chosen * model.experts.ffn / sizes.tensor
                           : sizes.rows * model.ffn / sizes.tensor;
  return buffers + 2 * gates * inner;
}

std::string RankBytes::reason() const {
  const double state = weights + gradients + optimizer;
  if (activations >= state && activations >= ends) {
    const auto count = static_cast<int>(in_flight + 0.5);
    return "the activations of " + std::to_string(std::max(1, count)) +
           (count > 1 ? " micro-batches in flight" : " micro-batch");
  }
  if (ends > state) return "the logits";
  return optimizer >= weights + gradients ? "the optimizer's state" : "weights and gradients";
}

std::vector<RankBytes> estimate_memory(const Architecture& model, const FrameworkTraits& framework,
                                       const ParallelSetup& setup,
                                       const std::vector<int>& in_flight) {
  std::vector<RankBytes> ranks(static_cast<std::size_t>(setup.pipeline));
  const double dense = kept_bytes(model, framework, setup, false, setup.recompute.of_all);
  const double experts = model.experts.count > 0
                             ? kept_bytes(model, framework, setup, true, setup.recompute.of_all)
                             : 0;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    RankBytes& bytes = ranks[static_cast<std::size_t>(rank)];
    const LayerRange range = range_of_rank(model, setup, rank);
    const int chunks = in_flight.empty() ? chunks_in_flight(setup, rank)
                                         : in_flight[static_cast<std::size_t>(rank)];
    bytes.in_flight = static_cast<double>(chunks) / setup.chunks;
    const StateBytes state = state_bytes(model, framework, setup, range);
    bytes.weights = state.weights;
    bytes.gradients = state.gradients;
    bytes.optimizer = state.optimizer;
    bytes.activations = bytes.in_flight * (range.dense * dense + range.with_experts * experts);
    if (range.embedding)
      bytes.ends += bytes.in_flight * embedding_kept_bytes(model, framework, setup);
    // Backward follows forward there: one micro-batch at a time.
    if (range.head) bytes.ends += head_kept_bytes(model, framework, setup);
    bytes.passing = passing_bytes(model, framework, setup, range);
  }
  return ranks;
}

}  // namespace pipewright::planner
