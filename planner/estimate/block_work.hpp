// What one rank does and keeps of one transformer block for one micro-batch: matrix products,
// memory traffic, messages, bytes. The formulas stand in docs/cost-model.md. Pure functions; counts
// and bytes.
#pragma once

#include <array>

#include "planner/estimate/kernels.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// The rank's part of the model's sizes.
struct BlockSizes {
  double rows = 0;                          // tokens, before tensor parallel ranks divide anything
  double sequence = 0;                      // of attention: whole, whatever cp does around it
  double heads = 0, key_heads = 0;          // of attention on this rank
  double query_width = 0, value_width = 0;  // of one head
  double samples = 0;
  double tensor = 1;
  double outside = 1;  // ranks that divide norms, dropouts and residuals (sequence parallel)
};
BlockSizes block_sizes(const Architecture& model, const ParallelSetup& setup);

/// Ranks that divide what is kept of a product's input: none where it stays as it was gathered.
inline double input_ranks(const FrameworkTraits& framework, const BlockSizes& sizes) {
  return framework.keeps_gathered ? 1 : sizes.outside;
}

/// The two products of an adapter, rows by A and the result by B, beside the block's product at
/// `place` (planner/estimate/adapters.hpp).
struct Adapter {
  LoraPlace place = LoraPlace::Qkv;
  Matmul into, out;

  int product() const { return static_cast<int>(place); }
  /// Whether the layer is divided by rows among tensor parallel ranks.
  bool follows_rows() const { return place == LoraPlace::Projection || place == LoraPlace::Second; }
};

struct BlockWork {
  BlockKind kind;
  std::array<Matmul, 12> products{};  // with weights
  int products_used = 0;
  int mixer_products = 0;  // the first of them; the last of these follows the scores, or the scan
  Matmul scores, context;  // of attention without flash attention
  double flash_flops = 0;  // of attention with it, forward
  double scan_flops = 0, scan_traffic = 0;           // of Mamba, forward
  double forward_traffic = 0, backward_traffic = 0;  // bytes of all other kernels
  double core_traffic = 0;  // of softmax and dropout of the scores, forward
  double core_backward_traffic = 0;
  bool unfused_softmax = false;          // where the framework's fused kernel can't take the scores
  double flash_rate = 1;                 // of the device's; less: of what is older on it
  double tensor_message = 0;             // bytes of one all-reduce (or of a gather and a scatter)
  double gathered_message = 0;           // of these gathers, under sequence parallelism
  int tensor_messages = 0;               // of them, forward; as many backward
  double tensor_message_of_experts = 0;  // the same around experts, under sequence parallelism
  double expert_message = 0;             // bytes of one all-to-all; two forward, two backward
  double token_message = 0;              // of it, with one copy of each token; 0: not sent once
  Experts experts;                       // whose places such copies go to
  bool routed_in_turn = false;           // a token's experts follow one another
  double context_message = 0;            // bytes of queries, keys, values and outputs, forward
  double ring_message = 0;               // bytes of keys and values, to the next of the ring
  bool is_frozen = false;  // products have no gradients of weights; the adapters' have
  std::array<Adapter, 7> adapters{};
  int adapters_used = 0;
  double parameters = 0;         // of this rank, that are trained
  double expert_parameters = 0;  // of these, weights of experts

  void add(const Matmul& matmul) { products[static_cast<std::size_t>(products_used++)] = matmul; }
};
BlockWork block_work(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, BlockKind kind);

/// The products, the convolution and the scan of Mamba (planner/estimate/mamba_work.cpp); what of
/// it the backward needs, in bytes.
void add_mamba(BlockWork& work, const Architecture& model, const BlockSizes& sizes);
double mamba_bytes(const Architecture& model, const FrameworkTraits& framework,
                   const BlockSizes& sizes);

/// Of the places among which so many experts are dealt out evenly, how many hold some of a token's
/// on average, where each choice of experts is as likely as any other, or where each token takes
/// the experts after those of the token before (`in_turn`).
double places_of_token(const Experts& experts, int places, bool in_turn);

/// Memory traffic of a forward's norms alone, and of the activation of what experts compute.
double norm_bytes(const Architecture& model, const ParallelSetup& setup, BlockKind kind);
double activation_bytes_of_experts(const Architecture& model, const ParallelSetup& setup);

/// Whether norms are of root mean squares, which have no shift, and take a kernel an operator;
/// PyTorch has one for layer norms.
bool has_unfused_norms(const Architecture& model, const FrameworkTraits& framework);

/// Whether selective recompute computes anything again: flash attention keeps no scores.
bool has_selective_recompute(const FrameworkTraits& framework);
/// Whether that is selective recompute by operator.
bool selects_operators(const FrameworkTraits& framework, LayerRecompute recompute);
/// Whether most of a block's forward comes again: by operator, or as a whole.
bool repeats_forward(const FrameworkTraits& framework, LayerRecompute recompute);

/// Bytes that the forward of a block leaves for its backward (arXiv:2205.05198 §4).
double saved_bytes(const Architecture& model, const FrameworkTraits& framework,
                   const ParallelSetup& setup, BlockKind kind, LayerRecompute recompute);

/// Of the blocks those whose saved bytes wait in the host's memory.
double offloaded_share(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup);
/// Of these bytes what stays on the device; the mean of all blocks.
double kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                  const ParallelSetup& setup, BlockKind kind, LayerRecompute recompute);

/// Weights that a rank holds of a block but for its adapters: tensor parallel ranks divide
/// matrices, those of each expert too, expert parallel ranks experts; norms are on all.
double block_parameters_of_rank(const Architecture& model, const ParallelSetup& setup,
                                BlockKind kind);
double expert_parameters_of_rank(const Architecture& model, const ParallelSetup& setup,
                                 BlockKind kind);

}  // namespace pipewright::planner
