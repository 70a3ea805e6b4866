// Matrix products on sub-matrices: what linear layers and attention are made of.
#pragma once

#include "exec/base/numerics.hpp"

namespace pipewright::exec::cpu {

/// A matrix inside a larger row-major one: `stride` floats from row to row; transposed: read with
/// rows and columns exchanged.
struct MatrixView {
  const float* data = nullptr;
  int stride = 0;
  bool transposed = false;
};

/// c[m][n] = alpha · a · b + beta · c, where a is m x k and b is k x n after their transpositions.
struct GemmSize {
  int m = 0, n = 0, k = 0;
};
/// Fast: OpenBLAS. Exact: canonical_gemm() with the fastest instructions of this machine; then beta
/// is 0, or it and alpha are 1. c overlaps neither a nor b.
void gemm(const GemmSize& size, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int c_stride, Numerics numerics = Numerics::Fast);

}  // namespace pipewright::exec::cpu
