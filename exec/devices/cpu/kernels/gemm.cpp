#include "exec/devices/cpu/kernels/gemm.hpp"

#include "exec/devices/cpu/kernels/blas.hpp"
#include "exec/devices/cpu/kernels/canonical_gemm.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

namespace cpu {

void gemm(const GemmSize& size, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int c_stride, Numerics numerics) {
  if (numerics == Numerics::Exact) {
    const Isa fastest = available_isas().back();
    return canonical_gemm(fastest, size, alpha, a, b, beta, c, c_stride);
  }
  sgemm(a.transposed, b.transposed, size.m, size.n, size.k, alpha, a.data, a.stride, b.data,
        b.stride, beta, c, c_stride);
}

}  // namespace cpu

void linear_forward(const LinearShape& s, const float* x, const float* w, float* y,
                    Numerics numerics) {
  cpu::gemm({s.rows, s.out, s.in}, 1.0F, {x, s.in}, {w, s.out}, 0.0F, y, s.out, numerics);
}

void linear_backward_input(const LinearShape& s, const float* dy, const float* w, float* dx,
                           Numerics numerics) {
  cpu::gemm({s.rows, s.in, s.out}, 1.0F, {dy, s.out}, {w, s.out, true}, 0.0F, dx, s.in, numerics);
}

void linear_backward_weight(const LinearShape& s, const float* x, const float* dy, float* dw,
                            Numerics numerics) {
  cpu::gemm({s.in, s.out, s.rows}, 1.0F, {x, s.in, true}, {dy, s.out}, 1.0F, dw, s.out, numerics);
}

}  // namespace pipewright::exec
