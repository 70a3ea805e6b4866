// The kernels' part of the table in exec/devices/cuda/module_api.h, for whoever can launch: the
// GPU's module, and a test on the CPU. A Launcher has
//   static int elements(void* stream, std::size_t n, F f);   f(i) for i in [0, n)
//   static int rows(void* stream, std::size_t n, F f);       f(lanes, row) for row in [0, n)
//   static int wide_rows(void* stream, std::size_t n, F f);  the same with kWideLanes lanes
//   static int product(void* stream, const pipewright_cuda_gemm& g); exec/devices/cuda/products.hpp
//   static int delay(void* stream, int64_t nanoseconds);
// and returns 0, or not 0 if it could not. So what is computed, and where it lies, is one text.
#pragma once

#include <algorithm>

#include "exec/devices/cuda/column_parts.hpp"
#include "exec/devices/cuda/columns.hpp"
#include "exec/devices/cuda/elements.hpp"
#include "exec/devices/cuda/fixed_words.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/products.hpp"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

inline constexpr float kLayerNormEpsilon = 1e-5F;  // of the same name in exec/layers/ops.hpp

inline std::size_t count(int n) { return static_cast<std::size_t>(n); }
inline std::size_t count(int rows, int width) { return count(rows) * count(width); }

template <class Launcher>
void fill_elements(pipewright_cuda_kernels& k) {
  k.bias_forward = [](void* s, int rows, int width, const float* bias, float* y) {
    return Launcher::elements(s, count(rows, width), BiasForward{count(width), bias, y});
  };
  k.relu_forward = [](void* s, std::size_t n, const float* x, float* y) {
    return Launcher::elements(s, n, ReluForward{x, y});
  };
  k.relu_backward_input = [](void* s, std::size_t n, const float* y, const float* dy, float* dx) {
    return Launcher::elements(s, n, ReluBackwardInput{y, dy, dx});
  };
  k.gelu_forward = [](void* s, std::size_t n, const float* x, float* y) {
    return Launcher::elements(s, n, GeluForward{x, y});
  };
  k.gelu_backward_input = [](void* s, std::size_t n, const float* x, const float* dy, float* dx) {
    return Launcher::elements(s, n, GeluBackwardInput{x, dy, dx});
  };
  k.add_to = [](void* s, std::size_t n, const float* x, float* y) {
    return Launcher::elements(s, n, AddTo{x, y});
  };
  k.scale = [](void* s, std::size_t n, float factor, float* y) {
    return Launcher::elements(s, n, Scale{factor, y});
  };
  k.scale_by = [](void* s, std::size_t n, const float* factor, float* y) {
    return Launcher::elements(s, n, ScaleBy{factor, y});
  };
  k.start = [](void* s, std::size_t n, std::uint64_t key, float bound, float value, float* y) {
    return Launcher::elements(s, n, Start{key, bound, value, y});
  };
  k.embedding_forward = [](void* s, int rows, int sequence, int width, const std::int32_t* ids,
                           const float* tokens, const float* positions, float* y) {
    return Launcher::elements(
        s, count(rows, width),
        EmbeddingForward{count(width), count(sequence), ids, tokens, positions, y});
  };
}

template <class Launcher>
void fill_losses_and_updates(pipewright_cuda_kernels& k) {
  k.cross_entropy_forward = [](void* s, int rows, int width, const float* logits,
                               const std::int32_t* labels, float* probabilities, float* facts) {
    return Launcher::rows(s, count(rows),
                          CrossEntropyForward{width, logits, labels, probabilities, facts});
  };
  k.cross_entropy_backward_input = [](void* s, int rows, int width, const float* probabilities,
                                      const std::int32_t* labels, float scale, float* dlogits) {
    return Launcher::elements(
        s, count(rows, width),
        CrossEntropyBackwardInput{count(width), probabilities, labels, scale, dlogits});
  };
  k.mse_forward = [](void* s, int rows, int width, const float* y, const float* target,
                     float* row_sums) {
    return Launcher::rows(s, count(rows), MseForward{width, y, target, row_sums});
  };
  k.mse_backward_input = [](void* s, std::size_t n, const float* y, const float* target,
                            float scale, float* dy) {
    return Launcher::elements(s, n, MseBackwardInput{y, target, 2.0F * scale, dy});
  };
  k.sgd = [](void* s, std::size_t n, float rate, const float* gradient, float* value) {
    return Launcher::elements(s, n, SgdUpdate{rate, gradient, value});
  };
  k.adamw = [](void* s, std::size_t n, std::size_t second_from,
               const pipewright_cuda_adamw* factors, const float* gradient, float* mean,
               float* square, float* value) {
    return Launcher::elements(s, n,
                              AdamwUpdate{second_from, factors, gradient, mean, square, value});
  };
}

template <class Launcher>
void fill_rows(pipewright_cuda_kernels& k) {
  k.layer_norm_forward = [](void* s, int rows, int width, const float* x, const float* scale,
                            const float* shift, float* y, float* mean, float* inverse) {
    return Launcher::rows(
        s, count(rows),
        LayerNormForward{width, x, scale, shift, y, mean, inverse, kLayerNormEpsilon});
  };
  k.layer_norm_backward_input = [](void* s, int rows, int width, const float* x, const float* mean,
                                   const float* inverse, const float* scale, const float* dy,
                                   float* dx) {
    return Launcher::rows(s, count(rows),
                          LayerNormBackwardInput{width, x, mean, inverse, scale, dy, dx});
  };
  k.causal_softmax_forward = [](void* s, int squares, int sequence, float* scores) {
    return Launcher::rows(s, count(squares, sequence), CausalSoftmaxForward{sequence, scores});
  };
  k.causal_softmax_backward_input = [](void* s, int squares, int sequence,
                                       const float* probabilities, float* d) {
    return Launcher::rows(s, count(squares, sequence),
                          CausalSoftmaxBackwardInput{sequence, probabilities, d});
  };
}

template <class Launcher>
void fill_columns(pipewright_cuda_kernels& k) {
  k.bias_backward_weight = [](void* s, int rows, int width, const float* dy, float*, int adds,
                              float* dbias) {
    return Launcher::elements(s, count(width),
                              BiasBackwardWeight{count(rows), count(width), dy, adds != 0, dbias});
  };
  k.layer_norm_backward_weight = [](void* s, int rows, int width, const float* x, const float* mean,
                                    const float* inverse, const float* dy, float*, int adds,
                                    float* dscale, float* dshift) {
    return Launcher::elements(s, count(width),
                              LayerNormBackwardWeight{count(rows), count(width), x, mean, inverse,
                                                      dy, adds != 0, dscale, dshift});
  };
  k.embedding_backward_weight = [](void* s, int rows, int sequence, int width,
                                   const std::int32_t* ids, const float* dy, std::int32_t* links,
                                   float* dtokens, float* dpositions) {
    const std::size_t all = count(rows);
    int failed = Launcher::elements(s, all, EmbeddingLinks{all, ids, links});
    if (failed == 0) {
      failed = Launcher::elements(s, count(rows, width),
                                  EmbeddingTokens{all, count(width), ids, links, dy, dtokens});
    }
    if (failed != 0 || dpositions == nullptr) return failed;
    return Launcher::elements(
        s, count(sequence, width),
        EmbeddingPositions{all, count(sequence), count(width), dy, dpositions});
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
  k.canonical_gemm = [](void* s, const pipewright_cuda_gemm* g) {
    return Launcher::product(s, *g);
  };
  k.delay = [](void* s, std::int64_t nanoseconds) { return Launcher::delay(s, nanoseconds); };
}

/// In place of those whose sums have the CPU's order.
template <class Launcher>
void fill_fast_rows(pipewright_cuda_kernels& k) {
  k.layer_norm_forward = [](void* s, int rows, int width, const float* x, const float* scale,
                            const float* shift, float* y, float* mean, float* inverse) {
    return Launcher::wide_rows(
        s, count(rows),
        LayerNormForward{width, x, scale, shift, y, mean, inverse, kLayerNormEpsilon});
  };
  k.layer_norm_backward_input = [](void* s, int rows, int width, const float* x, const float* mean,
                                   const float* inverse, const float* scale, const float* dy,
                                   float* dx) {
    return Launcher::wide_rows(s, count(rows),
                               LayerNormBackwardInput{width, x, mean, inverse, scale, dy, dx});
  };
  k.cross_entropy_forward = [](void* s, int rows, int width, const float* logits,
                               const std::int32_t* labels, float* probabilities, float* facts) {
    return Launcher::wide_rows(s, count(rows),
                               CrossEntropyForward{width, logits, labels, probabilities, facts});
  };
  k.mse_forward = [](void* s, int rows, int width, const float* y, const float* target,
                     float* row_sums) {
    return Launcher::wide_rows(s, count(rows), MseForward{width, y, target, row_sums});
  };
}

template <class Launcher>
void fill_fast_columns(pipewright_cuda_kernels& k) {
  k.bias_backward_weight = [](void* s, int rows, int width, const float* dy, float* scratch,
                              int adds, float* dbias) {
    const std::size_t parts = parts_of_rows(count(rows), count(width)), columns = count(width);
    if (parts == 1) {
      return Launcher::elements(s, columns,
                                BiasBackwardWeight{count(rows), columns, dy, adds != 0, dbias});
    }
    const int failed =
        Launcher::elements(s, parts * columns, BiasParts{count(rows), columns, parts, dy, scratch});
    if (failed != 0) return failed;
    return Launcher::elements(s, columns,
                              PartTotals{columns, parts, scratch, adds != 0, dbias, nullptr});
  };
  k.layer_norm_backward_weight = [](void* s, int rows, int width, const float* x, const float* mean,
                                    const float* inverse, const float* dy, float* scratch, int adds,
                                    float* dscale, float* dshift) {
    const std::size_t parts = parts_of_rows(count(rows), count(width)), columns = count(width);
    if (parts == 1) {
      return Launcher::elements(s, columns,
                                LayerNormBackwardWeight{count(rows), columns, x, mean, inverse, dy,
                                                        adds != 0, dscale, dshift});
    }
    const int failed = Launcher::elements(
        s, parts * columns,
        LayerNormParts{count(rows), columns, parts, x, mean, inverse, dy, scratch});
    if (failed != 0) return failed;
    return Launcher::elements(s, 2 * columns,
                              PartTotals{columns, parts, scratch, adds != 0, dscale, dshift});
  };
}

template <class Launcher>
pipewright_cuda_kernels kernel_table() {
  pipewright_cuda_kernels kernels{};
  fill_elements<Launcher>(kernels);
  fill_losses_and_updates<Launcher>(kernels);
  fill_rows<Launcher>(kernels);
  fill_columns<Launcher>(kernels);
  fill_sums<Launcher>(kernels);
  return kernels;
}

template <class Launcher>
pipewright_cuda_kernels fast_kernel_table() {
  pipewright_cuda_kernels kernels = kernel_table<Launcher>();
  fill_fast_rows<Launcher>(kernels);
  fill_fast_columns<Launcher>(kernels);
  return kernels;
}

}  // namespace pipewright::exec::cuda
