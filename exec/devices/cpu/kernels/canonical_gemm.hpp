// The matrix product whose bits do not depend on the machine, on the other rows, on alignment or on
// how the matrices lie: each element is one chain c = fma(a_ik, b_kj, c), k ascending. What BLAS
// libraries give differs from core to core and, in some, with the number of rows.
#pragma once

#include "exec/devices/cpu/kernels/canonical_kernels.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"

namespace pipewright::exec::cpu {

/// c = alpha · a · b, the chain beginning with 0 (beta 0), or c + a · b, the chain beginning with c
/// (beta 1, alpha 1); another choice is a Bug. c overlaps neither a nor b. Any thread; keeps its
/// packed blocks, some 0.5 MiB, on the stack.
void canonical_gemm(Isa isa, const GemmSize& size, float alpha, const MatrixView& a,
                    const MatrixView& b, float beta, float* c, int c_stride);

}  // namespace pipewright::exec::cpu
