// A product of row-major matrices as cuBLAS is asked for it. cuBLAS counts in columns, so what it
// is given looks transposed to it, and it is asked for the transposed product, c' = b' · a'. It
// takes one step from matrix to matrix of a batch, so the outer ones are asked for one by one. Pure
// functions.
#pragma once

#include <cstdint>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// A factor, first column major matrix as cuBLAS sees it, and its steps.
struct BlasFactor {
  bool transposed = false;
  const float* data = nullptr;
  int leading = 0;  // floats from column to column
  std::int64_t step = 0;
};

/// result[m x n] = alpha · first[m x k] · second[k x n] + beta · result, `count` times.
struct BlasCall {
  int m = 0, n = 0, k = 0, count = 0;
  float alpha = 1, beta = 0;
  BlasFactor first, second;
  float* result = nullptr;
  int result_leading = 0;
  std::int64_t result_step = 0;
};

inline BlasFactor blas_factor(const pipewright_cuda_matrix& m, int outer) {
  return {m.transposed != 0, m.data + outer * m.outer_step, m.stride, m.inner_step};
}

/// The inner batch of the outer-th matrices.
inline BlasCall blas_call(const pipewright_cuda_gemm& g, int outer) {
  return {g.n,
          g.m,
          g.k,
          g.inner,
          g.alpha,
          g.beta,
          blas_factor(g.b, outer),
          blas_factor(g.a, outer),
          g.c + outer * g.c_outer_step,
          g.c_stride,
          g.c_inner_step};
}

}  // namespace pipewright::exec::cuda
