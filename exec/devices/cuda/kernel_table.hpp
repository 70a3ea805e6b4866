// The kernels' part of the table in exec/devices/cuda/module_api.h, for whoever can launch: the
// GPU's module, and a test on the CPU. A Launcher has
//   static int elements(void* stream, std::size_t n, F f);   f(i) for i in [0, n), packs of f
//   static int rows(void* stream, std::size_t n, F f);       f(lanes, row) for row in [0, n)
//   static int wide_rows(void* stream, std::size_t n, F f);  the same with kWideLanes lanes
//   template <int packs>
//   static int held_rows(void* stream, std::size_t n, int lanes, F f);
//   exec/devices/cuda/held_rows.hpp static int tiles(void* stream, F f);   all blocks of a
//   ColumnTiles, exec/devices/cuda/column_tiles.hpp static int product(void* stream, const
//   pipewright_cuda_gemm& g); exec/devices/cuda/products.hpp static int delay(void* stream, int64_t
//   nanoseconds);
// and returns 0, or not 0 if it could not. Where F has packs (exec/devices/cuda/packs.hpp),
// f.pack(i) does F::kPack elements at once. So what is computed, and where it lies, is one text.
#pragma once

#include <algorithm>

#include "exec/devices/cuda/columns.hpp"
#include "exec/devices/cuda/context_elements.hpp"
#include "exec/devices/cuda/divided_elements.hpp"
#include "exec/devices/cuda/elements.hpp"
#include "exec/devices/cuda/expert_kernels.hpp"
#include "exec/devices/cuda/fixed_words.hpp"
#include "exec/devices/cuda/image_kernel_table.hpp"
#include "exec/devices/cuda/latent_kernels.hpp"
#include "exec/devices/cuda/llama_elements.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/products.hpp"
#include "exec/devices/cuda/ring_rows.hpp"
#include "exec/devices/cuda/rows.hpp"
#include "exec/devices/cuda/shared_sums.hpp"
#include "exec/devices/cuda/table_arrays.hpp"

namespace pipewright::exec::cuda {

inline constexpr float kLayerNormEpsilon = 1e-5F;  // of the same name in exec/layers/ops.hpp

template <class Launcher, class T>
void fill_elements(pipewright_cuda_kernels& k) {
  k.bias_forward = [](void* s, int rows, int width, const void* bias, void* y) {
    const BiasForward<T> each{count(width), in<T>(bias), out<T>(y)};
    const std::size_t n = count(rows, width);
    return begins_a_pack(y) ? Launcher::elements(s, n, each)
                            : Launcher::elements(s, n, OneByOne<BiasForward<T>>{each});
  };
  k.relu_forward = [](void* s, std::size_t n, const void* x, void* y) {
    return Launcher::elements(s, n, Map<T, T, Relu>{in<T>(x), out<T>(y), {}});
  };
  k.relu_backward_input = [](void* s, std::size_t n, const void* y, const void* dy, void* dx) {
    return Launcher::elements(s, n,
                              Map2<T, T, T, ReluGradient>{in<T>(y), in<T>(dy), out<T>(dx), {}});
  };
  k.gelu_forward = [](void* s, std::size_t n, const void* x, void* y) {
    return Launcher::elements(s, n, Map<T, T, Gelu<T>>{in<T>(x), out<T>(y), {}});
  };
  k.gelu_backward_input = [](void* s, std::size_t n, const void* x, const void* dy, void* dx) {
    return Launcher::elements(s, n,
                              Map2<T, T, T, GeluGradient<T>>{in<T>(x), in<T>(dy), out<T>(dx), {}});
  };
  k.add_to = [](void* s, std::size_t n, const void* x, void* y) {
    return Launcher::elements(s, n, Map2<T, T, T, Plus>{out<T>(y), in<T>(x), out<T>(y), {}});
  };
  k.scale = [](void* s, std::size_t n, float factor, float* y) {
    return Launcher::elements(s, n, Map<float, float, Times>{y, y, {factor}});
  };
  k.scale_by = [](void* s, std::size_t n, const float* factor, float* y) {
    return Launcher::elements(s, n, ScaleBy{factor, y});
  };
  k.round = [](void* s, std::size_t n, const float* x, void* y) {
    return Launcher::elements(s, n, Map<float, T, Same>{x, out<T>(y), {}});
  };
  k.start = [](void* s, std::size_t n, std::uint64_t key, float bound, float value, float* y) {
    return Launcher::elements(s, n, Start{key, bound, value, y});
  };
  k.embedding_forward = [](void* s, int rows, int width, const pipewright_cuda_places* places,
                           const std::int32_t* ids, const void* tokens, const void* positions,
                           void* y) {
    return Launcher::elements(s, count(rows, width),
                              EmbeddingForward<T>{count(width), *places, ids, in<T>(tokens),
                                                  in<T>(positions), out<T>(y)});
  };
}

template <class Launcher, class T>
void fill_llama(pipewright_cuda_kernels& k) {
  k.swiglu_forward = [](void* s, int rows, int width, const void* x, void* y) {
    return Launcher::elements(s, count(rows, width),
                              SwigluForward<T>{count(width), in<T>(x), out<T>(y)});
  };
  k.swiglu_backward_input = [](void* s, int rows, int width, const void* x, const void* dy,
                               void* dx) {
    return Launcher::elements(
        s, count(rows, width),
        SwigluBackwardInput<T>{count(width), in<T>(x), in<T>(dy), out<T>(dx)});
  };
  k.rotate = [](void* s, int rows, int sequence, int heads, int head_width, int stride, int back,
                const float* turns, void* x) {
    const std::size_t half = count(head_width / 2);
    return Launcher::elements(
        s, count(rows, heads) * half,
        Rotate<T>{count(sequence), count(heads), half, count(stride), back != 0, turns, out<T>(x)});
  };
}

template <class Launcher, class T>
void fill_losses_and_updates(pipewright_cuda_kernels& k) {
  k.cross_entropy_backward_input = [](void* s, int rows, int width, const void* probabilities,
                                      const std::int32_t* labels, float scale, void* dlogits) {
    return Launcher::elements(s, count(rows, width),
                              CrossEntropyBackwardInput<T>{count(width), in<T>(probabilities),
                                                           labels, scale, out<T>(dlogits)});
  };
  k.mse_backward_input = [](void* s, std::size_t n, const void* y, const float* target, float scale,
                            void* dy) {
    return Launcher::elements(
        s, n, Map2<T, float, T, MseGradient>{in<T>(y), target, out<T>(dy), {2.0F * scale}});
  };
  k.sgd = [](void* s, std::size_t n, float rate, const float* gradient, float* value, void* read) {
    return Launcher::elements(s, n, SgdUpdate{rate, gradient, value, out<Bfloat16>(read)});
  };
  k.adamw = [](void* s, std::size_t n, std::size_t second_from,
               const pipewright_cuda_adamw* factors, const float* gradient, float* mean,
               float* square, float* value, void* read) {
    return Launcher::elements(
        s, n,
        AdamwUpdate{second_from, factors, gradient, mean, square, value, out<Bfloat16>(read)});
  };
}

template <class Rows, class T>
void fill_rows(pipewright_cuda_kernels& k) {
  k.layer_norm_forward = [](void* s, int rows, int width, const void* x, const void* scale,
                            const void* shift, void* y, float* mean, float* inverse) {
    return Rows::run(s, count(rows),
                     LayerNormForward<T>{width, in<T>(x), in<T>(scale), in<T>(shift), out<T>(y),
                                         mean, inverse, kLayerNormEpsilon});
  };
  k.layer_norm_backward_input = [](void* s, int rows, int width, const void* x, const float* mean,
                                   const float* inverse, const void* scale, const void* dy,
                                   void* dx) {
    return Rows::run(s, count(rows),
                     LayerNormBackwardInput<T>{width, in<T>(x), mean, inverse, in<T>(scale),
                                               in<T>(dy), out<T>(dx)});
  };
  k.rms_norm_forward = [](void* s, int rows, int width, const void* x, const void* scale, void* y,
                          float* inverse) {
    return Rows::run(
        s, count(rows),
        RmsNormForward<T>{width, in<T>(x), in<T>(scale), out<T>(y), inverse, kLayerNormEpsilon});
  };
  k.rms_norm_backward_input = [](void* s, int rows, int width, const void* x, const float* inverse,
                                 const void* scale, const void* dy, void* dx) {
    return Rows::run(
        s, count(rows),
        RmsNormBackwardInput<T>{width, in<T>(x), inverse, in<T>(scale), in<T>(dy), out<T>(dx)});
  };
  k.cross_entropy_forward = [](void* s, int rows, int width, const void* logits,
                               const std::int32_t* labels, void* probabilities, float* facts) {
    return Rows::run(
        s, count(rows),
        CrossEntropyForward<T>{width, in<T>(logits), labels, out<T>(probabilities), facts});
  };
  k.judge_rows = [](void* s, int rows, int width, int first, const void* outputs,
                    const std::int32_t* labels, float* facts) {
    return Rows::run(s, count(rows), JudgeRow<T>{width, first, in<T>(outputs), labels, facts});
  };
  k.mse_forward = [](void* s, int rows, int width, const void* y, const float* target,
                     float* row_sums) {
    return Rows::run(s, count(rows), MseForward<T>{width, in<T>(y), target, row_sums});
  };
}

template <class Rows, class T>
void fill_attention(pipewright_cuda_kernels& k) {
  k.causal_softmax_forward = [](void* s, const pipewright_cuda_causal* of, void* scores) {
    return Rows::run(s, count(of->matrices, of->rows),
                     CausalSoftmaxForward<T>{of->columns, *of, out<T>(scores)});
  };
  k.causal_softmax_backward_input = [](void* s, const pipewright_cuda_causal* of, float factor,
                                       const void* probabilities, void* d) {
    return Rows::run(
        s, count(of->matrices, of->rows),
        CausalSoftmaxBackwardInput<T>{of->columns, *of, factor, in<T>(probabilities), out<T>(d)});
  };
}

template <class Columns, class T>
void fill_columns(pipewright_cuda_kernels& k) {
  k.bias_backward_weight = [](void* s, int rows, int width, const void* dy, float* scratch,
                              int adds, float* dbias) {
    return Columns::run(s, rows, width, ArrayTerm<T, 1>{{in<T>(dy)}}, scratch, adds, {dbias});
  };
  k.layer_norm_backward_weight = [](void* s, int rows, int width, const void* x, const float* mean,
                                    const float* inverse, const void* dy, float* scratch, int adds,
                                    float* dscale, float* dshift) {
    return Columns::run(s, rows, width, LayerNormTerm<T>{in<T>(x), mean, inverse, in<T>(dy)},
                        scratch, adds, {dscale, dshift});
  };
  k.rms_norm_backward_weight = [](void* s, int rows, int width, const void* x, const float* inverse,
                                  const void* dy, float* scratch, int adds, float* dscale) {
    return Columns::run(s, rows, width, RmsNormTerm<T>{in<T>(x), inverse, in<T>(dy)}, scratch, adds,
                        {dscale});
  };
}

/// To the gradients of a token table, by `tokens`, and of positions, which may be null.
template <class Launcher, class T, class Tokens>
int add_embeddings(void* s, int rows, int width, const pipewright_cuda_places& places,
                   const std::int32_t* ids, const void* dy, std::int32_t* links,
                   const Tokens& tokens, float* dpositions) {
  const std::size_t all = count(rows);
  int failed = Launcher::elements(s, all, EmbeddingLinks{all, ids, links});
  if (failed == 0) failed = Launcher::elements(s, count(rows, width), tokens);
  if (failed != 0 || dpositions == nullptr) return failed;
  return Launcher::elements(
      s, count(places.sequence, width),
      EmbeddingPositions<T>{all, count(width), places, in<T>(dy), dpositions});
}

template <class Launcher, class T>
void fill_embedding(pipewright_cuda_kernels& k) {
  k.embedding_backward_weight = [](void* s, int rows, int width,
                                   const pipewright_cuda_places* places, const std::int32_t* ids,
                                   const void* dy, std::int32_t* links, float* dtokens,
                                   float* dpositions) {
    const EmbeddingTokens<T> tokens{count(rows), count(width), ids, links, in<T>(dy), dtokens};
    return add_embeddings<Launcher, T>(s, rows, width, *places, ids, dy, links, tokens, dpositions);
  };
}

/// Where ranks divide weights, token tables and logits.
template <class Launcher, class T>
void fill_divided(pipewright_cuda_kernels& k) {
  k.start_part = [](void* s, std::size_t n, std::uint64_t key, float bound, float value,
                    const pipewright_cuda_slice* slice, float* y) {
    return Launcher::elements(s, n, StartPart{key, bound, value, *slice, y});
  };
  k.look_up = [](void* s, int rows, int width, int first, int own, int alone,
                 const std::int32_t* ids, const void* tokens, void* y) {
    return Launcher::elements(
        s, count(rows, width),
        LookUp<T>{count(width), first, own, alone != 0, ids, in<T>(tokens), out<T>(y)});
  };
  k.add_positions = [](void* s, int rows, int width, const pipewright_cuda_places* places,
                       const void* positions, void* y) {
    return Launcher::elements(s, count(rows, width),
                              AddPositions<T>{count(width), *places, in<T>(positions), out<T>(y)});
  };
  k.look_up_backward_weight = [](void* s, int rows, int width, const pipewright_cuda_places* places,
                                 int first, int own, const std::int32_t* ids, const void* dy,
                                 std::int32_t* links, float* dtokens, float* dpositions) {
    const LookedUpTokens<T> tokens{count(rows), count(width), first,     own,
                                   ids,         links,        in<T>(dy), dtokens};
    return add_embeddings<Launcher, T>(s, rows, width, *places, ids, dy, links, tokens, dpositions);
  };
  k.divided_cross_entropy_backward_input = [](void* s, int rows, int width, int first,
                                              const void* probabilities, const std::int32_t* labels,
                                              float scale, void* dlogits) {
    return Launcher::elements(
        s, count(rows, width),
        CrossEntropyBackwardInput<T>{count(width), in<T>(probabilities), labels, scale,
                                     out<T>(dlogits), count(first)});
  };
}

template <class Rows, class T>
void fill_divided_rows(pipewright_cuda_kernels& k) {
  k.tell_logits = [](void* s, int rows, int width, int first, int member, int members,
                     const void* logits, const std::int32_t* labels, float* facts) {
    return Rows::run(s, count(rows),
                     TellLogits<T>{width, first, member, members, in<T>(logits), labels, facts});
  };
  k.add_exponentials = [](void* s, int rows, int width, int, int members, const void* logits,
                          const float* facts, void* exponentials, float* sums) {
    return Rows::run(
        s, count(rows),
        AddExponentials<T>{width, members, in<T>(logits), facts, out<T>(exponentials), sums});
  };
  k.finish_cross_entropy = [](void* s, int rows, int width, int members, const float* facts,
                              const float* sums, void* probabilities, float* row_facts) {
    return Rows::run(
        s, count(rows),
        FinishCrossEntropy<T>{width, members, facts, sums, out<T>(probabilities), row_facts});
  };
}

/// Where ranks divide sequences.
template <class Launcher, class T>
void fill_context(pipewright_cuda_kernels& k) {
  k.copy_columns = [](void* s, int rows, int width, float factor, const void* from, int from_stride,
                      void* to, int to_stride) {
    return Launcher::elements(s, count(rows, width),
                              CopyColumns<T>::of(count(width), factor, in<T>(from),
                                                 count(from_stride), out<T>(to), count(to_stride)));
  };
  k.losses_of_rows = [](void* s, int rows, int of_row, const float* facts, double* losses) {
    return Launcher::elements(s, count(rows), LossesOfRows{of_row, facts, losses});
  };
}

template <class Rows, class T>
void fill_ring(pipewright_cuda_kernels& k) {
  k.ring_rows_forward = [](void* s, const pipewright_cuda_ring* of, void* scores, void* context,
                           float* largest, float* sum) {
    return Rows::run(
        s, count(of->samples, of->heads) * count(of->chunk),
        RingRowsForward<T>{of->chunk, *of, out<T>(scores), out<T>(context), largest, sum});
  };
  k.finish_ring = [](void* s, int rows, int head_width, void* context, float* largest,
                     const float* sum) {
    return Rows::run(s, count(rows), FinishRing<T>{head_width, out<T>(context), largest, sum});
  };
  k.products_of_rows = [](void* s, int rows, int width, const void* a, const void* b,
                          float* products) {
    return Rows::run(s, count(rows), ProductsOfRows<T>{width, in<T>(a), in<T>(b), products});
  };
  k.ring_rows_backward = [](void* s, const pipewright_cuda_ring* of, float factor,
                            const float* log_sums, const float* products, void* scores, void* d) {
    return Rows::run(
        s, count(of->samples, of->heads) * count(of->chunk),
        RingRowsBackward<T>{of->chunk, *of, factor, log_sums, products, out<T>(scores), out<T>(d)});
  };
}

/// In levels, each with a sixty-fourth of the threads of the one before.
template <class Launcher>
int add_squares(void* s, std::size_t n, const float* x, SquareWords* partial, SquareWords* total,
                int* bad) {
  constexpr std::size_t kMost = PIPEWRIGHT_CUDA_SQUARE_LANES, kEach = 64;
  std::size_t lanes = std::clamp<std::size_t>(n / kEach, 1, kMost);
  int failed = Launcher::elements(s, lanes, SquareLane{n, lanes, x, partial, bad});
  while (failed == 0 && lanes > kEach) {
    const std::size_t next = (lanes + kEach - 1) / kEach;
    failed = Launcher::elements(s, next, SquareLevel{lanes, next, partial, partial + lanes, bad});
    partial += lanes;
    lanes = next;
  }
  return failed != 0 ? failed : Launcher::elements(s, 1, SquareTotal{lanes, partial, total, bad});
}

template <class Launcher>
void fill_sums(pipewright_cuda_kernels& k) {
  k.fixed_add = [](void* s, std::size_t n, float* gradient, std::int64_t* high, std::int64_t* low,
                   int* bad) {
    return Launcher::elements(s, n, FixedAdd{gradient, high, low, bad});
  };
  k.fixed_round = [](void* s, std::size_t n, const std::int64_t* high, const std::int64_t* low,
                     float* gradient) {
    return Launcher::elements(s, n, FixedRound{high, low, gradient});
  };
  k.add_squares = [](void* s, std::size_t n, const float* x, std::int64_t* partial,
                     std::int64_t* total, int* bad) {
    static_assert(sizeof(SquareWords) == 4 * sizeof(std::int64_t));
    return add_squares<Launcher>(s, n, x, reinterpret_cast<SquareWords*>(partial),
                                 reinterpret_cast<SquareWords*>(total), bad);
  };
  k.clip_factor = [](void* s, int ranks, const std::int64_t* totals, double most, float* factor,
                     int* bad) {
    return Launcher::elements(
        s, 1,
        ClipFactor{count(ranks), reinterpret_cast<const SquareWords*>(totals), most, factor, bad});
  };
  k.squares_as_number = [](void* s, const std::int64_t* total, double* squares) {
    return Launcher::elements(
        s, 1, SquaresAsNumber{reinterpret_cast<const SquareWords*>(total), squares});
  };
  k.clip_factor_of_number = [](void* s, const double* squares, double most, float* factor) {
    return Launcher::elements(s, 1, ClipFactorOfNumber{squares, most, factor});
  };
  k.canonical_gemm = [](void* s, const pipewright_cuda_gemm* g) {
    return Launcher::product(s, *g);
  };
  k.delay = [](void* s, std::int64_t nanoseconds) { return Launcher::delay(s, nanoseconds); };
}

template <class Launcher, class T>
pipewright_cuda_kernels common_kernels() {
  pipewright_cuda_kernels kernels{};
  fill_elements<Launcher, T>(kernels);
  fill_llama<Launcher, T>(kernels);
  fill_losses_and_updates<Launcher, T>(kernels);
  fill_embedding<Launcher, T>(kernels);
  fill_divided<Launcher, T>(kernels);
  fill_context<Launcher, T>(kernels);
  fill_latent<Launcher, T>(kernels);
  fill_routing<Launcher>(kernels);
  fill_sums<Launcher>(kernels);
  return kernels;
}

template <class Launcher>
pipewright_cuda_kernels kernel_table() {
  pipewright_cuda_kernels kernels = common_kernels<Launcher, float>();
  fill_rows<ExactRows<Launcher>, float>(kernels);
  fill_divided_rows<ExactRows<Launcher>, float>(kernels);
  fill_routed_rows<Launcher, ExactRows<Launcher>, float>(kernels);
  kernels.add_exponentials = [](void* s, int rows, int width, int first, int members,
                                const void* logits, const float* facts, void* exponentials,
                                float* sums) {
    return Launcher::elements(
        s, count(rows) * kLanes,
        AddExponentialsInParts{count(width), count(first), members, in<float>(logits), facts,
                               out<float>(exponentials), sums});
  };
  fill_attention<ExactRows<Launcher>, float>(kernels);
  fill_ring<ExactRows<Launcher>, float>(kernels);
  fill_columns<ExactColumns<Launcher>, float>(kernels);
  kernels.images = image_kernels<Launcher, ExactRows<Launcher>, float>();
  return kernels;
}

/// T: float or Bfloat16.
template <class Launcher, class T>
pipewright_cuda_kernels fast_kernel_table() {
  pipewright_cuda_kernels kernels = common_kernels<Launcher, T>();
  fill_rows<WideRows<Launcher>, T>(kernels);
  fill_divided_rows<WideRows<Launcher>, T>(kernels);
  fill_routed_rows<Launcher, WideRows<Launcher>, T>(kernels);
  fill_attention<AttentionRows<Launcher>, T>(kernels);
  fill_ring<AttentionRows<Launcher>, T>(kernels);
  fill_columns<TiledColumns<Launcher>, T>(kernels);
  kernels.images = image_kernels<Launcher, PlaneRows<Launcher>, T>();
  return kernels;
}

}  // namespace pipewright::exec::cuda
