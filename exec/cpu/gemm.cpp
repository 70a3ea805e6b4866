#include "exec/cpu/gemm.hpp"

#include <cblas.h>

#include <mutex>

#include "exec/ops.hpp"

namespace pipewright::exec {

namespace cpu {
namespace {

// A rank is one thread on one core: OpenBLAS's own threads would disturb the other ranks and make
// timings meaningless, so a threaded build is told to use one.
// The sequential build (libopenblas0-serial) gives out its work buffers without a lock: ranks that
// multiply at once may get the same buffer and compute nonsense. Which build is loaded is settled
// when the program starts, so it is asked here; with the sequential one, ranks take turns.
std::unique_lock<std::mutex> access_to_blas() {
  static std::mutex turn;
  static const bool is_sequential = [] {
    openblas_set_num_threads(1);
    return openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
  }();
  return is_sequential ? std::unique_lock(turn) : std::unique_lock<std::mutex>();
}

}  // namespace

void gemm(const GemmSize& size, float alpha, const MatrixView& a, const MatrixView& b, float beta,
          float* c, int c_stride) {
  const auto access = access_to_blas();
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, size.m, size.n, size.k, alpha, a.data,
              a.stride, b.data, b.stride, beta, c, c_stride);
}

}  // namespace cpu

void linear_forward(const LinearShape& s, const float* x, const float* w, float* y) {
  cpu::gemm({s.rows, s.out, s.in}, 1.0F, {x, s.in}, {w, s.out}, 0.0F, y, s.out);
}

void linear_backward_input(const LinearShape& s, const float* dy, const float* w, float* dx) {
  cpu::gemm({s.rows, s.in, s.out}, 1.0F, {dy, s.out}, {w, s.out, true}, 0.0F, dx, s.in);
}

void linear_backward_weight(const LinearShape& s, const float* x, const float* dy, float* dw) {
  cpu::gemm({s.in, s.out, s.rows}, 1.0F, {x, s.in, true}, {dy, s.out}, 1.0F, dw, s.out);
}

}  // namespace pipewright::exec
