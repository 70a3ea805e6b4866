// Batches of products of the matrices of attention's heads, which lie side by side in wider rows.
// Pure functions.
#pragma once

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

inline pipewright_cuda_matrix transposed(pipewright_cuda_matrix matrix) {
  matrix.transposed = 1;
  return matrix;
}

struct BatchOfHeads {
  int outer = 0, inner = 0;
};

/// c[m][n] = alpha · a[m][k] · b[k][n] + beta · c, for each of the batch.
inline pipewright_cuda_gemm product_of_heads(const BatchOfHeads& batch, int m, int n, int k,
                                             float alpha, const pipewright_cuda_matrix& a,
                                             const pipewright_cuda_matrix& b, float beta,
                                             const pipewright_cuda_matrix& c) {
  pipewright_cuda_gemm product{};
  product.m = m;
  product.n = n;
  product.k = k;
  product.outer = batch.outer;
  product.inner = batch.inner;
  product.alpha = alpha;
  product.beta = beta;
  product.a = a;
  product.b = b;
  product.c = const_cast<void*>(c.data);
  product.c_stride = c.stride;
  product.c_outer_step = c.outer_step;
  product.c_inner_step = c.inner_step;
  return product;
}

}  // namespace pipewright::exec::cuda
