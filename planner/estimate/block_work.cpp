#include "planner/estimate/block_work.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/estimate/adapters.hpp"

namespace pipewright::planner {

namespace {

/// Widths on one rank, in numbers a row.
struct Widths {
  double queries = 0, keys = 0, values = 0;  // of what enters attention
  double output = 0;                         // of what leaves it
  double inner = 0;                          // dense feed-forward part
};

Widths widths_of(const Architecture& model, const ParallelSetup& setup) {
  const double tensor = setup.tensor;
  Widths widths;
  widths.inner = model.ffn / tensor;
  if (model.latent.is_used()) {
    const double heads = model.heads / tensor;
    widths.queries = widths.keys = heads * model.latent.query();
    widths.values = widths.output = heads * model.latent.value;
  } else {
    widths.queries = widths.output = model.heads * model.head / tensor;
    widths.keys = widths.values =
        std::max(1.0, model.key_value_heads / tensor) * static_cast<double>(model.head);
  }
  return widths;
}

void add_attention_products(BlockWork& work, const Architecture& model, const BlockSizes& sizes,
                            const Widths& widths) {
  const double rows = sizes.rows, hidden = model.hidden, tensor = sizes.tensor;
  if (model.latent.is_used()) {
    const LatentWidths& latent = model.latent;
    const double key_values = model.heads / tensor * (latent.plain + latent.value);
    const double down = latent.key_value_rank + latent.rotary;
    if (latent.query_rank > 0) work.add({rows, static_cast<double>(latent.query_rank), hidden});
    work.add({rows, widths.queries, latent.query_rank > 0 ? latent.query_rank : hidden});
    work.add({rows, down, hidden});
    work.add({rows, key_values, static_cast<double>(latent.key_value_rank)});
  } else {
    work.add({rows, widths.queries + widths.keys + widths.values, hidden});
  }
  work.add({rows, hidden, widths.output});
}

void add_feed_forward_products(BlockWork& work, const Architecture& model,
                               const ParallelSetup& setup, const BlockSizes& sizes, bool experts) {
  const double rows = sizes.rows, hidden = model.hidden, gates = model.gated ? 2 : 1;
  if (!experts) {
    const double inner = model.ffn / sizes.tensor;
    work.add({rows, gates * inner, hidden});
    work.add({rows, hidden, inner});
    return;
  }
  const Experts& set = model.experts;
  const double outer = set.outer(model.hidden);
  if (set.latent > 0) {
    work.add({rows / sizes.outside, outer, hidden});
    work.add({rows / sizes.outside, hidden, outer});
  }
  if (set.shared_ffn > 0) {
    const double inner = set.shared_ffn / sizes.tensor;
    work.add({rows, gates * inner, hidden});
    work.add({rows, hidden, inner});
  }
  const double here = static_cast<double>(set.count) / setup.experts;
  // Of the tokens of all ranks that send one another some, dealt out to tensor parallel ranks too
  // where these do not divide the experts.
  const double inner = static_cast<double>(set.ffn) / setup.expert_tensor();
  const double each =
      rows * setup.expert_tensor() / sizes.tensor * set.chosen * setup.experts / set.count;
  work.add({each, gates * inner, outer, here});
  work.add({each, outer, inner, here});
  work.add({rows / sizes.outside, static_cast<double>(set.count), hidden});  // the router
}

/// What goes into products of 8 or 4 bits is converted: read in 16 bits and written twice, for the
/// forward's product and, turned, for that of the weights' gradient. Norms and activations write
/// their results so in place of 16 bits (Transformer Engine, LayerNormLinear and LayerNormMLP);
/// what leaves attention and the gradients of results are passes of their own. Where a tensor has a
/// scale of its own beside its blocks' (NVFP4), all are, and read twice. The router stays at 16.
/// Of frozen weights there is no gradient, so the second layout is left out.
void convert_products(BlockWork& work, const Architecture& model, const FrameworkTraits& framework,
                      bool experts) {
  if (framework.product_bytes == 2) return;
  const bool whole = product_format(framework.product_bytes)->scales_tensors();
  const int end = work.products_used - (experts ? 1 : 0);
  double inputs = 0, gradients = 0;
  for (int p = 0; p < end; ++p) {
    Matmul& product = work.products[static_cast<std::size_t>(p)];
    product.bytes = framework.product_bytes;
    const bool is_activated = product.depth == model.hidden && p >= work.mixer_products;
    const bool leaves_attention = p == work.mixer_products - 1;
    if (whole || leaves_attention) inputs += product.count * product.rows * product.depth;
    if (whole || !is_activated) gradients += product.count * product.rows * product.columns;
  }
  const double each = (whole ? 4 : 2) + (work.is_frozen ? 1 : 2) * framework.product_bytes;
  work.forward_traffic += each * inputs;
  work.backward_traffic += each * gradients;
}

/// Scores: n heads of sequence x sequence. Counted as a whole square without flash attention, with
/// it as what no mask hides (arXiv:2205.14135 skips the rest).
void add_attention_core(BlockWork& work, const Architecture& model,
                        const FrameworkTraits& framework, const BlockSizes& sizes, Mixer mixer) {
  const double count = sizes.samples * sizes.heads;
  const double square = sizes.sequence * sizes.sequence * count;
  if (framework.flash_attention) {
    const double seen = 2 * tokens_seen(model, mixer) * sizes.sequence * count;
    work.flash_flops = seen * (sizes.query_width + sizes.value_width);
    work.flash_rate = framework.flash_rate;
    return;
  }
  work.scores = {sizes.sequence, sizes.sequence, sizes.query_width, count};
  work.context = {sizes.sequence, sizes.value_width, sizes.sequence, count};
  // Read and write for each pass: scale, mask, softmax, dropout with its mask of a byte; in one
  // pass and dropout where they are fused, which reads no score behind the diagonal.
  const bool fused =
      framework.fused_kernels && std::fmod(std::ceil(count), kHeadsOfFusedSoftmax) == 0;
  work.core_traffic = (fused ? 8 : 17) * square;
  work.core_backward_traffic = (fused ? 9 : 19) * square;
  work.unfused_softmax = framework.fused_kernels && !fused;
}

/// Of a norm, bytes for each number. Of an unfused one of root mean squares each operator reads and
/// writes numbers of 32 bits: the conversion, the square, the mean, the product with its root, the
/// conversion back and the product with the weights; so do their gradients (PyTorch's operators,
/// counted by tests/peers/operator_traffic.py).
struct NormTraffic {
  double forward = 4, backward = 6;
};
NormTraffic norm_traffic(const Architecture& model, const FrameworkTraits& framework) {
  return has_unfused_norms(model, framework) ? NormTraffic{36, 92} : NormTraffic{};
}

/// Norms, bias, dropout, residual: what sequence parallel divides. Bytes for each number.
void add_outside_traffic(BlockWork& work, const Architecture& model,
                         const FrameworkTraits& framework, const BlockSizes& sizes, int parts) {
  const double numbers = parts * sizes.rows * model.hidden / sizes.outside;
  const double add = !framework.dropout ? 6 : framework.fused_kernels ? 7 : 15;
  const NormTraffic norm = norm_traffic(model, framework);
  work.forward_traffic += (norm.forward + add) * numbers;
  work.backward_traffic += (norm.backward + (framework.dropout ? 5 : 0) + 6) * numbers;
}

void add_attention_traffic(BlockWork& work, const Architecture& model,
                           const FrameworkTraits& framework, const BlockSizes& sizes,
                           const Widths& widths) {
  const double entering = widths.queries + widths.keys + widths.values;
  work.forward_traffic += sizes.rows * 4 * widths.output;  // heads back side by side
  work.backward_traffic += sizes.rows * 4 * widths.output;
  if (model.biases) {
    work.forward_traffic += framework.fused_kernels ? 0 : sizes.rows * 2 * entering;
    work.backward_traffic += sizes.rows * (2 * entering + 2 * widths.output);
  }
  if (!model.learned_positions) {
    // Rotary positions: once over queries and keys; unfused they become numbers of 32 bits, are
    // multiplied as complex ones and become 16 bits again.
    const double each = framework.fused_kernels ? 4 : 20;
    work.forward_traffic += sizes.rows * each * (widths.queries + widths.keys);
    work.backward_traffic += sizes.rows * each * (widths.queries + widths.keys);
  }
  // Queries, keys and values come of a product each, whose inputs' gradients are added up.
  if (has_unfused_norms(model, framework)) work.backward_traffic += sizes.rows * 12 * model.hidden;
}

/// Gated, the activation reads two and writes one; backward reads three and writes two. Unfused the
/// product of both is a pass of its own, and backward each of its gradients, and the sum of what
/// both give for their input.
void add_activation_traffic(BlockWork& work, const Architecture& model,
                            const FrameworkTraits& framework, const BlockSizes& sizes,
                            double activated) {
  const bool fused = framework.fused_kernels;
  if (model.biases) work.backward_traffic += sizes.rows * 2 * activated;
  const double forward = model.gated ? (fused ? 6 : 10) : fused ? 4 : 8;
  const double backward = model.gated ? (fused ? 10 : 18) : fused ? 6 : 8;
  work.forward_traffic += sizes.rows * forward * activated;
  work.backward_traffic += sizes.rows * backward * activated;
  if (model.gated && !fused && activated > 0)
    work.backward_traffic += sizes.rows * 6 * model.hidden;
}

void add_expert_traffic(BlockWork& work, const Architecture& model,
                        const FrameworkTraits& framework, const ParallelSetup& setup,
                        const BlockSizes& sizes) {
  // A token's copies are put in order before they are sent, and by expert after; the results go
  // the same way back: four times read and written. Under sequence parallelism each tensor parallel
  // rank sends those of its rows, and the ranks that divide an expert gather what they got
  // (Megatron core, transformer/moe/token_dispatcher.py, with the all-to-all).
  const double copies = sizes.rows * model.experts.chosen * model.experts.outer(model.hidden);
  const double sent = copies / sizes.outside;
  const double computed = copies * setup.expert_tensor() / sizes.tensor;
  // Where a token goes once to each device, the message itself takes it from its place, and the
  // device that gets it makes the copies (DeepEP, HybridEP).
  const bool once = framework.sends_tokens_once && setup.experts > 1;
  const double ordered = once ? computed : sent + computed;
  work.forward_traffic += 8 * ordered;
  work.backward_traffic += 8 * ordered;
  if (model.biases && !framework.groups_experts) {
    work.forward_traffic += kExpertBiasForward * computed;
    work.backward_traffic += kExpertBiasBackward * computed;
  }
  if (setup.experts > 1) work.expert_message = 2 * sent;
  if (once) {
    work.experts = model.experts;
    work.token_message = work.expert_message / model.experts.chosen;
    work.routed_in_turn = framework.routes_in_turn;
    work.expert_message = work.token_message *
                          places_of_token(model.experts, setup.experts, framework.routes_in_turn);
  }
  if (setup.expert_tensor() > 1) work.tensor_message_of_experts = 2 * copies;
  if (model.experts.shared_ffn > 0) work.tensor_message_of_experts += 2 * sizes.rows * model.hidden;
}

}  // namespace

double places_of_token(const Experts& experts, int places, bool in_turn) {
  if (in_turn) {
    // A token's first expert is as often any that gcd(each, chosen) divides.
    const int each = experts.count / places;
    const double others = experts.chosen - std::gcd(each, experts.chosen);
    return std::min<double>(places, 1 + others / each);
  }
  const double all = experts.count, each = all / places;
  double none_here = 1;
  for (int k = 0; k < experts.chosen; ++k) none_here *= std::max(0.0, all - each - k) / (all - k);
  return places * (1 - none_here);
}

BlockSizes block_sizes(const Architecture& model, const ParallelSetup& setup) {
  BlockSizes sizes;
  const double split = static_cast<double>(setup.tensor) * setup.context;
  sizes.samples = setup.micro_batch_size;
  sizes.sequence = model.sequence;
  sizes.rows = sizes.samples * sizes.sequence / setup.context;
  sizes.heads = model.heads / split;
  // At least one for each tensor parallel rank, of the tokens of all that go round the ring.
  sizes.key_heads =
      std::max(1.0, static_cast<double>(model.key_value_heads) / setup.tensor) / setup.context;
  const bool latent = model.latent.is_used();
  sizes.query_width = latent ? model.latent.query() : model.head;
  sizes.value_width = latent ? model.latent.value : model.head;
  sizes.tensor = setup.tensor;
  sizes.outside = setup.sequence_parallel ? setup.tensor : 1;
  return sizes;
}

BlockWork block_work(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, BlockKind kind) {
  const BlockSizes sizes = block_sizes(model, setup);
  const Widths widths = widths_of(model, setup);
  BlockWork work;
  work.kind = kind;
  work.is_frozen = model.lora.is_used();
  if (kind.has_attention()) add_attention_products(work, model, sizes, widths);
  if (kind.mixer == Mixer::Mamba) add_mamba(work, model, sizes);
  work.mixer_products = work.products_used;
  if (kind.feed_forward != FeedForward::None)
    add_feed_forward_products(work, model, setup, sizes, kind.has_experts());
  convert_products(work, model, framework, kind.has_experts());
  add_outside_traffic(work, model, framework, sizes, kind.parts());
  if (kind.has_attention()) {
    add_attention_core(work, model, framework, sizes, kind.mixer);
    add_attention_traffic(work, model, framework, sizes, widths);
  }
  double activated = kind.feed_forward == FeedForward::Dense ? widths.inner : 0;
  if (kind.has_experts()) {
    activated =
        (model.experts.chosen * static_cast<double>(model.experts.ffn) + model.experts.shared_ffn) /
        sizes.tensor;
    add_expert_traffic(work, model, framework, setup, sizes);
  }
  add_activation_traffic(work, model, framework, sizes, activated);
  if (work.is_frozen) add_adapters(work, model, sizes);
  work.parameters = work.is_frozen ? adapter_parameters_of_rank(model, setup)
                                   : block_parameters_of_rank(model, setup, kind);
  work.expert_parameters = expert_parameters_of_rank(model, setup, kind);
  if (framework.fuses_accumulation) {
    for (Matmul& product : work.products) product.sum_bytes = framework.accumulate_bytes;
    for (Adapter& adapter : work.adapters)
      adapter.into.sum_bytes = adapter.out.sum_bytes = framework.accumulate_bytes;
  } else {
    work.backward_traffic += work.parameters * framework.accumulate_bytes;
  }
  if (setup.zero >= 3) {
    const double copies = work.parameters * framework.gather_bytes;
    work.forward_traffic += copies;
    // What computes again has its weights from one gather.
    if (!repeats_forward(framework, setup.recompute.of_all)) work.backward_traffic += copies;
  }
  if (setup.tensor > 1) {
    work.tensor_message = 2 * sizes.rows * model.hidden;
    work.gathered_message = framework.product_bytes * sizes.rows * model.hidden;
    work.tensor_messages = kind.parts();
  }
  if (setup.context > 1 && kind.has_attention()) {
    work.ring_message = 2 * sizes.rows * (widths.keys + widths.values);
    work.context_message =
        2 * sizes.rows * (widths.queries + widths.keys + widths.values + widths.output);
  }
  return work;
}

bool has_unfused_norms(const Architecture& model, const FrameworkTraits& framework) {
  return !framework.fused_kernels && !model.biases;
}

bool has_selective_recompute(const FrameworkTraits& framework) {
  return !framework.flash_attention || framework.selects_operators;
}

bool selects_operators(const FrameworkTraits& framework, LayerRecompute recompute) {
  return framework.selects_operators && recompute == LayerRecompute::Attention;
}

bool repeats_forward(const FrameworkTraits& framework, LayerRecompute recompute) {
  return recompute == LayerRecompute::Whole || selects_operators(framework, recompute);
}

double norm_bytes(const Architecture& model, const ParallelSetup& setup, BlockKind kind) {
  const BlockSizes sizes = block_sizes(model, setup);
  return kind.parts() * 4 * sizes.rows * model.hidden / sizes.outside;  // each reads and writes
}

double activation_bytes_of_experts(const Architecture& model, const ParallelSetup& setup) {
  const BlockSizes sizes = block_sizes(model, setup);
  const double numbers = sizes.rows * model.experts.chosen * model.experts.ffn / sizes.tensor;
  return (model.gated ? 6 : 4) * numbers;
}

double expert_parameters_of_rank(const Architecture& model, const ParallelSetup& setup,
                                 BlockKind kind) {
  if (!kind.has_experts()) return 0;
  return expert_parameters(model) * model.experts.count / (setup.experts * setup.expert_tensor());
}

double block_parameters_of_rank(const Architecture& model, const ParallelSetup& setup,
                                BlockKind kind) {
  const double others =
      kind.parts() * norm_parameters(model) + mixer_parameters(model, kind.mixer) / setup.tensor;
  switch (kind.feed_forward) {
    case FeedForward::Dense:
      return others + feed_forward_parameters(model) / setup.tensor;
    case FeedForward::None:
      return others;
    case FeedForward::Experts:
      break;
  }
  const Experts& set = model.experts;
  const double hidden = model.hidden, gates = model.gated ? 3 : 2;
  const double shared = gates * hidden * set.shared_ffn / setup.tensor;
  const double whole = hidden * set.count + 2 * hidden * set.latent;  // router, and to its width
  return others + whole + shared + expert_parameters_of_rank(model, setup, kind);
}

}  // namespace pipewright::planner
