// What a block keeps from its forward to its backward, after Korthikanti et al., "Reducing
// Activation Recomputation in Large Transformer Models" (arXiv:2205.05198), §4, written for any
// widths: with ffn of 4 * hidden and plain heads it is their s·b·h·(10 + 24/t + 5·a·s/(h·t)).
#include <algorithm>

#include "planner/estimate/adapters.hpp"

namespace pipewright::planner {

namespace {

/// Of a number that goes into a product, as the gradient of the product's weights reads it; of
/// frozen weights there is none, and adapters read what has not been converted.
double input_bytes(const Architecture& model, const FrameworkTraits& framework, LoraPlace place) {
  if (!model.lora.is_used()) return framework.product_bytes;
  return is_adapted(model, place) ? 2 : 0;
}

/// Inputs of the norms and of the products after them, and a byte of each dropout's mask.
/// The products' inputs are whole on every tensor parallel rank unless the sequence is divided, or
/// what was gathered is kept; those of frozen ones are adapters' to keep (adapter_kept_bytes()). An
/// unfused norm keeps its input in 32 bits, and what it gives before the product with its weights.
double outside_bytes(const Architecture& model, const FrameworkTraits& framework,
                     const BlockSizes& sizes, int parts) {
  const bool forgets = framework.recomputes_norms || model.lora.is_used();
  const double entering = forgets ? 0 : framework.product_bytes;
  const double divided =
      (has_unfused_norms(model, framework) ? 6 : 2) + (framework.dropout ? 1 : 0);
  const double numbers = parts * sizes.rows * model.hidden;
  return numbers * (divided / sizes.outside + entering / input_ranks(framework, sizes));
}

/// Of keys and values for a token: on this rank, of all its heads where they come of a latent.
double key_value_width(const Architecture& model, const BlockSizes& sizes) {
  const double heads = model.latent.is_used() ? sizes.heads : sizes.key_heads;
  return heads * (sizes.query_width + sizes.value_width);
}

/// Of every token's queries, keys and values on this rank.
double query_key_value_bytes(const Architecture& model, const BlockSizes& sizes) {
  return 2 * sizes.samples * sizes.sequence *
         (sizes.heads * sizes.query_width + key_value_width(model, sizes));
}

double attention_bytes(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup, const BlockSizes& sizes,
                       LayerRecompute recompute) {
  const double split = static_cast<double>(setup.tensor) * setup.context;
  const double rows = sizes.samples * sizes.sequence;
  const bool latent = model.latent.is_used();
  double bytes =
      latent && framework.recomputes_projections ? 0 : query_key_value_bytes(model, sizes);
  // Input of the product after attention, which the backward of flash attention reads, too.
  const bool reads_result = model.lora.is_used() && framework.flash_attention;
  bytes += (reads_result ? 2 : input_bytes(model, framework, LoraPlace::Projection)) * rows *
           sizes.heads * sizes.value_width;
  if (latent) {
    // Before and after the two narrow norms, and keys and values before they are put together.
    const LatentWidths& narrow = model.latent;
    bytes += 2 * sizes.rows *
             (2.0 * narrow.query_rank + 2.0 * narrow.key_value_rank + narrow.rotary) /
             sizes.outside;
  }
  const double square = sizes.samples * model.heads / split * sizes.sequence * sizes.sequence;
  if (framework.flash_attention) {
    bytes += 4 * rows * sizes.heads;  // the logarithms of the sums
    if (setup.context > 1) bytes += 2 * rows * sizes.heads * sizes.value_width;
  } else if (recompute != LayerRecompute::Attention) {
    bytes += 5 * square;  // probabilities before and after dropout, and its mask
  }
  return bytes;
}

double feed_forward_bytes(const Architecture& model, const FrameworkTraits& framework,
                          const ParallelSetup& setup, const BlockSizes& sizes, bool experts) {
  // What comes of the first product, and the second's input.
  const double second = input_bytes(model, framework, LoraPlace::Second);
  const double factor = model.gated && !framework.fused_kernels ? 2 : 0;  // the activated gate
  const double inner = 2 * (model.gated ? 2 : 1) + factor + second;
  if (!experts) return sizes.rows * inner * model.ffn / sizes.tensor;
  const Experts& set = model.experts;
  const double outer = set.outer(model.hidden);
  // Those that a rank sends, and those that it computes.
  const double sent = sizes.rows * set.chosen / sizes.outside;
  const double copies = sizes.rows * set.chosen * setup.expert_tensor() / sizes.tensor;
  const double shared = sizes.rows * inner * set.shared_ffn / sizes.tensor;
  const double kept = framework.recomputes_activations ? inner - second : inner;
  const double routed = copies * (kept * set.ffn / setup.expert_tensor() +
                                  input_bytes(model, framework, LoraPlace::First) * outer);
  return shared + routed + 2 * sent * outer + 8 * sizes.rows / sizes.outside * set.count;
}

/// A block's input, what attention gave with the logarithms of its sums, and what each second
/// product gave (operators_again()).
double operators_bytes(const Architecture& model, const BlockSizes& sizes, BlockKind kind) {
  const double rows = sizes.samples * sizes.sequence;
  double bytes = 2 * sizes.rows * model.hidden / sizes.outside;
  if (kind.has_attention()) {
    const double queries = sizes.heads * sizes.query_width,
                 values = sizes.key_heads * sizes.value_width;
    bytes += rows * (2 * (queries + values) + sizes.heads * (2 * sizes.value_width + 4));
  }
  if (kind.feed_forward == FeedForward::Dense)
    bytes += 2 * sizes.rows * (model.ffn / sizes.tensor + model.hidden / sizes.outside);
  return bytes;
}

}  // namespace

double offloaded_share(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup) {
  if (setup.pipeline > 1 || setup.recompute.of_all == LayerRecompute::Whole) return 0;
  // One block's come and go beside the others'.
  return std::clamp(framework.offloaded_blocks - 1, 0, model.blocks) /
         static_cast<double>(model.blocks);
}

double saved_bytes(const Architecture& model, const FrameworkTraits& framework,
                   const ParallelSetup& setup, BlockKind kind, LayerRecompute recompute) {
  const BlockSizes sizes = block_sizes(model, setup);
  if (recompute == LayerRecompute::Whole) {
    const bool attends = kind.has_attention();
    const double input = 2 * sizes.rows * model.hidden / sizes.outside;
    double bytes = input;
    if (framework.keeps_mixed && attends) bytes += input;
    if (framework.keeps_queries && attends) bytes += query_key_value_bytes(model, sizes);
    return bytes;
  }
  if (selects_operators(framework, recompute)) return operators_bytes(model, sizes, kind);
  double bytes =
      outside_bytes(model, framework, sizes, kind.parts()) + adapter_kept_bytes(model, sizes);
  if (kind.has_attention()) bytes += attention_bytes(model, framework, setup, sizes, recompute);
  if (kind.mixer == Mixer::Mamba) bytes += mamba_bytes(model, framework, sizes);
  if (kind.feed_forward != FeedForward::None)
    bytes += feed_forward_bytes(model, framework, setup, sizes, kind.has_experts());
  return bytes;
}

double kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                  const ParallelSetup& setup, BlockKind kind, LayerRecompute recompute) {
  return (1 - offloaded_share(model, framework, setup)) *
         saved_bytes(model, framework, setup, kind, recompute);
}

}  // namespace pipewright::planner
