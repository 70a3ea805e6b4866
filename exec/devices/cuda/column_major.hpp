// A product of row-major matrices as cuBLAS is asked for it. cuBLAS counts in columns, so what it
// is given looks transposed to it, and it is asked for the transposed product, c' = b' · a'. It
// takes one step from matrix to matrix of a batch, so the outer ones are asked for one by one. Pure
// functions.
#pragma once

#include <cstdint>

#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// A factor, first column major matrix as cuBLAS sees it, and its steps.
struct BlasFactor {
  bool transposed = false;
  const void* data = nullptr;
  int leading = 0;  // numbers from column to column
  std::int64_t step = 0;
};

/// result[m x n] = alpha · first[m x k] · second[k x n] + beta · result, `count` times.
struct BlasCall {
  int m = 0, n = 0, k = 0, count = 0;
  float alpha = 1, beta = 0;
  BlasFactor first, second;
  void* result = nullptr;
  int result_leading = 0;
  std::int64_t result_step = 0;
  bool factors_are_bf16 = false, result_is_bf16 = false;
};

/// So many numbers on in an array, which are floats otherwise.
inline const void* advanced(const void* from, std::int64_t numbers, bool are_bf16) {
  return are_bf16 ? static_cast<const void*>(static_cast<const Bfloat16*>(from) + numbers)
                  : static_cast<const float*>(from) + numbers;
}

inline BlasFactor blas_factor(const pipewright_cuda_matrix& m, int outer, bool is_bf16) {
  return {m.transposed != 0, advanced(m.data, outer * m.outer_step, is_bf16), m.stride,
          m.inner_step};
}

/// The inner batch of the outer-th matrices.
inline BlasCall blas_call(const pipewright_cuda_gemm& g, int outer, int precision) {
  const bool is_bf16 = precision == PIPEWRIGHT_CUDA_BF16, narrow = is_bf16 && g.c_is_float == 0;
  return {g.n,
          g.m,
          g.k,
          g.inner,
          g.alpha,
          g.beta,
          blas_factor(g.b, outer, is_bf16),
          blas_factor(g.a, outer, is_bf16),
          const_cast<void*>(advanced(g.c, outer * g.c_outer_step, narrow)),
          g.c_stride,
          g.c_inner_step,
          is_bf16,
          narrow};
}

}  // namespace pipewright::exec::cuda
