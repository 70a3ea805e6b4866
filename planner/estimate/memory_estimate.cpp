// Bytes of a rank: what stays, what micro-batches in flight keep, what passes.
#include <algorithm>
#include <array>

#include "planner/estimate/gradient_exchange.hpp"
#include "planner/estimate/step_estimate.hpp"
#include "planner/estimate/step_parts.hpp"
#include "planner/estimate/tensor_exchange.hpp"

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
  const double shared = weights.shared(setup), trained = weights.trained.shared(setup);
  // Of NVFP4 both layouts lie beside the 16-bit weights (Megatron-Bridge, mixed_precision.py:
  // fp8_param_gather is off).
  const double copies = framework.product_bytes < 1 ? 2 * framework.product_bytes : 0;
  const bool scatters = setup.zero >= 2 && !sums_whole_gradients(framework, setup);
  return {(2 + copies) * (setup.zero >= 3 ? shared : weights.all),
          framework.gradient_bytes * (scatters ? trained : weights.trained.all),
          framework.state_bytes * (setup.zero >= 1 ? trained : weights.trained.all)};
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
  // A fused loss keeps 16-bit logits and writes the gradient over them.
  const bool divided = setup.tensor > 1 && framework.divided_loss_kept_bytes > 0;
  const double unfused = divided ? framework.divided_loss_kept_bytes : framework.loss_kept_bytes;
  const double each = framework.fused_loss ? 2 : unfused;
  // Of the last norm, and of the head, whose input a frozen one does not read again.
  const double of_head = model.lora.is_used() ? 0 : 2 / input_ranks(framework, sizes);
  const double of_norm = has_unfused_norms(model, framework) ? 6 : 2;
  const double head =
      sizes.rows * model.hidden * (of_norm / sizes.outside + of_head) + each * logits;
  if (model.further_tokens == 0) return head;
  // Both inputs, after their norms.
  const double inputs = 4 * sizes.rows * model.hidden / sizes.outside;
  return head + model.further_tokens * (head + inputs +
                                        kept_bytes(model, framework, setup, model.kind_of_further(),
                                                   setup.recompute.of_all));
}

namespace {

double table_numbers(const Architecture& model, const ParallelSetup& setup) {
  return static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
}

/// Transformer Engine hands autograd an empty 16-bit gradient of each shape of weight while it adds
/// the real one to the 32-bit gradient, and keeps it: once for each shape on the rank that is
/// trained. Adapters are layers of Megatron core, which keep none.
double weight_buffers(const Architecture& model, const FrameworkTraits& framework,
                      const ParallelSetup& setup, const LayerRange& range) {
  double numbers = 0;
  bool seen_attention = false, seen_mamba = false;
  std::array<bool, 3> seen{};  // by FeedForward
  for_each_kind(range.blocks, [&](BlockKind kind, int /*count*/) {
    const BlockWork work = block_work(model, framework, setup, kind);
    bool& seen_mixer = kind.mixer == Mixer::Mamba ? seen_mamba : seen_attention;
    bool& seen_feed = seen[static_cast<std::size_t>(kind.feed_forward)];
    const int from = seen_mixer ? work.mixer_products : 0;
    // The router is not one of its layers.
    const int end =
        seen_feed ? work.mixer_products : work.products_used - (kind.has_experts() ? 1 : 0);
    for (int p = from; p < end; ++p) {
      const Matmul& product = work.products[static_cast<std::size_t>(p)];
      numbers += product.columns * product.depth;
    }
    seen_mixer = seen_mixer || kind.mixer != Mixer::None;
    seen_feed = true;
  });
  if (range.head) numbers += table_numbers(model, setup);
  return 2 * numbers;
}

/// Of what a block's first products give and backward makes a gradient of, on one rank.
double widest_numbers(const Architecture& model, const ParallelSetup& setup, BlockKind kind) {
  const BlockSizes sizes = block_sizes(model, setup);
  const double gates = model.gated ? 2 : 1;
  const double of_mamba = kind.mixer == Mixer::Mamba ? model.mamba.entering() : 0;
  double inner = 0;
  if (kind.feed_forward == FeedForward::Dense) inner = model.ffn;
  if (kind.has_experts()) inner = static_cast<double>(model.experts.chosen) * model.experts.ffn;
  return sizes.rows * std::max(of_mamba, gates * inner) / sizes.tensor;
}

/// What sequence parallel ranks have whole in a block's backward, where autograd has it: the
/// gathered gradient of what the block gives, and that of its input before the scatter.
double gathered_gradient_bytes(const Architecture& model, const FrameworkTraits& framework,
                               const ParallelSetup& setup) {
  if (!framework.keeps_gathered) return 0;
  const BlockSizes sizes = block_sizes(model, setup);
  return 2 * 2 * sizes.rows * model.hidden * (1 - 1 / sizes.outside);
}

/// Weights and gradients beside the activations, at the moments of a rank's backward that can be
/// its fullest.
struct GatheredBytes {
  double arriving = 0;  // stays at all of them
  double at_loss = 0;
  double in_first_block = 0;
  double in_second_block = 0;
};

/// FSDP2 as torch.distributed._tools.fsdp2_mem_tracker counts it: the last block and the tables of
/// the ends are gathered at the loss; in the second block's backward the gradients of the first are
/// being scattered. What arrives is of a stream of its own, from which the allocator gives nothing
/// to others: the next block and the one that is copied, or all tables.
GatheredBytes gathered_by_blocks(const Architecture& model, const FrameworkTraits& framework,
                                 const ParallelSetup& setup, const LayerRange& range) {
  double block = 0;
  for_each_kind(range.blocks, [&](BlockKind kind, int /*count*/) {
    block = std::max(block, block_parameters_of_rank(model, setup, kind));
  });
  const int ends = (range.embedding ? 1 : 0) + (range.head ? 1 : 0);
  const double tables = (model.tied_head ? std::min(ends, 1) : ends) * table_numbers(model, setup);
  const double of_head = range.head ? 2 * table_numbers(model, setup) : 0;  // its gradient
  return {std::max(2 * 2 * block, 2 * tables), 2 * (block + tables), 2 * (block + tables) + of_head,
          (2 + framework.gradient_bytes) * block + 2 * tables + of_head};
}

/// Tensor by tensor, the largest and its parts, or its gradient.
double gathered_by_tensors(const Architecture& model, const FrameworkTraits& framework,
                           const ParallelSetup& setup, const LayerRange& range) {
  double most = range.head || range.embedding ? table_numbers(model, setup) : 0;
  for_each_kind(range.blocks, [&](BlockKind kind, int /*count*/) {
    most = std::max(most, widest_tensor(model, framework, setup, kind));
  });
  return (2 + std::max(2.0, framework.gradient_bytes)) * most;
}

GatheredBytes gathered_bytes(const Architecture& model, const FrameworkTraits& framework,
                             const ParallelSetup& setup, const LayerRange& range) {
  if (setup.zero < 3 || framework.gather_bytes == 0 || model.lora.is_used()) return {};
  if (framework.gathers_tensors)
    return {gathered_by_tensors(model, framework, setup, range), 0, 0, 0};
  return gathered_by_blocks(model, framework, setup, range);
}

/// What a gathered block's backward holds besides what its forward keeps: gradients of its widest
/// part, and of the weights of its last product.
double gradients_in_block(const Architecture& model, const ParallelSetup& setup, BlockKind kind) {
  const double inner = kind.feed_forward == FeedForward::Dense ? model.ffn : model.experts.ffn;
  return 2 * (widest_numbers(model, setup, kind) + inner * model.hidden / setup.tensor);
}

/// Beside all activations while blocks are computed backward, and what is gathered then.
double passing_in_blocks(const Architecture& model, const FrameworkTraits& framework,
                         const ParallelSetup& setup, const LayerRange& range,
                         const GatheredBytes& gathered) {
  const bool again = repeats_forward(framework, setup.recompute.of_all);
  double most = gathered.in_first_block;
  for_each_kind(range.blocks, [&](BlockKind kind, int /*count*/) {
    // The peak is where the backward begins, at the last blocks; dense ones are the first.
    if (kind.feed_forward == FeedForward::Dense && range.blocks.with_experts() > 0) return;
    double own = 0;
    if (again)
      own = saved_bytes(model, framework, setup, kind, LayerRecompute::None);
    else if (framework.keeps_weight_buffers)
      own = 2 * widest_numbers(model, setup, kind);
    if (gathered.in_first_block > 0) own += gradients_in_block(model, setup, kind);
    const double gone = kept_bytes(model, framework, setup, kind, setup.recompute.of_all);
    most = std::max({most, own + gathered.in_first_block, own + gathered.in_second_block - gone});
  });
  return most + gathered_gradient_bytes(model, framework, setup);
}

}  // namespace

double passing_bytes(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, const LayerRange& range) {
  const GatheredBytes gathered = gathered_bytes(model, framework, setup, range);
  const double buffers = framework.keeps_weight_buffers && !model.lora.is_used()
                             ? weight_buffers(model, framework, setup, range)
                             : 0;
  const double constant = buffers + gathered.arriving;
  const double in_blocks = passing_in_blocks(model, framework, setup, range, gathered);
  // What DTensor holds besides is not known under tensor parallelism: nothing is gone there.
  if (gathered.at_loss == 0 || !range.head || setup.tensor > 1) return constant + in_blocks;
  return constant +
         std::max(gathered.at_loss, in_blocks - head_kept_bytes(model, framework, setup));
}

std::string RankBytes::reason() const {
  const double state = weights + gradients + optimizer;
  if (activations >= std::max({state, ends, received})) {
    const auto count = static_cast<int>(in_flight + 0.5);
    return "the activations of " + std::to_string(std::max(1, count)) +
           (count > 1 ? " micro-batches in flight" : " micro-batch");
  }
  if (ends > std::max(state, received)) return "the logits";
  if (received > state) return "receive buffers";
  return optimizer >= weights + gradients ? "the optimizer's state" : "weights and gradients";
}

namespace {

/// What does not depend on how many micro-batches are in flight.
void set_constant(RankBytes& bytes, const Architecture& model, const FrameworkTraits& framework,
                  const ParallelSetup& setup, const LayerRange& range) {
  const StateBytes state = state_bytes(model, framework, setup, range);
  bytes.weights = state.weights;
  bytes.gradients = state.gradients;
  bytes.optimizer = state.optimizer;
  bytes.passing = passing_bytes(model, framework, setup, range);
}

}  // namespace

std::vector<RankBytes> estimate_memory(const Architecture& model, const FrameworkTraits& framework,
                                       const ParallelSetup& setup,
                                       const std::vector<int>& in_flight) {
  std::vector<RankBytes> ranks(static_cast<std::size_t>(setup.pipeline));
  std::array<double, kBlockKinds> kept{};
  for_each_kind(blocks_in(model, 0, model.blocks).blocks, [&](BlockKind kind, int /*count*/) {
    kept[kind.index()] = kept_bytes(model, framework, setup, kind, setup.recompute.of_all);
  });
  LayerRange before;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    RankBytes& bytes = ranks[static_cast<std::size_t>(rank)];
    const LayerRange range = range_of_rank(model, setup, rank);
    // Ranks in the middle are mostly alike.
    if (rank > 0 && range == before) {
      bytes = ranks[static_cast<std::size_t>(rank) - 1];
      bytes.activations = bytes.ends = 0;
    } else {
      set_constant(bytes, model, framework, setup, range);
    }
    before = range;
    // Each of its stages has two neighbours, but for the first and the last.
    const int ends = (range.embedding ? 1 : 0) + (range.head ? 1 : 0);
    bytes.received =
        setup.pipeline == 1 ? 0 : received_bytes(model, framework, setup, 2 * setup.chunks - ends);
    const int chunks = in_flight.empty() ? chunks_in_flight(setup, rank)
                                         : in_flight[static_cast<std::size_t>(rank)];
    bytes.in_flight = static_cast<double>(chunks) / setup.chunks;
    for_each_kind(range.blocks, [&](BlockKind kind, int count) {
      bytes.activations += bytes.in_flight * count * kept[kind.index()];
    });
    if (range.embedding)
      bytes.ends += bytes.in_flight * embedding_kept_bytes(model, framework, setup);
    // Backward follows forward there: one micro-batch at a time.
    if (range.head) bytes.ends += head_kept_bytes(model, framework, setup);
  }
  return ranks;
}

}  // namespace pipewright::planner
