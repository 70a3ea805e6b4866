// Where the elements of a batch of matrix products lie, and one element of a product as
// exec/devices/cpu/kernels/canonical_gemm.hpp defines it: one chain c = fma(a_ik, b_kj, c), k
// ascending. Pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// One of the matrices of a batch.
struct BatchMatrix {
  const float* data;
  std::int64_t across, along;  // floats from row to row, and from column to column

  PIPEWRIGHT_HOST_DEVICE BatchMatrix(const pipewright_cuda_matrix& m, int outer, int inner)
      : data(static_cast<const float*>(m.data) + outer * m.outer_step + inner * m.inner_step),
        across(m.transposed != 0 ? 1 : m.stride),
        along(m.transposed != 0 ? m.stride : 1) {}
  PIPEWRIGHT_HOST_DEVICE float at(int row, int column) const {
    return data[row * across + column * along];
  }
};

PIPEWRIGHT_HOST_DEVICE inline float* result_of(const pipewright_cuda_gemm& g, int outer,
                                               int inner) {
  return static_cast<float*>(g.c) + outer * g.c_outer_step + inner * g.c_inner_step;
}

PIPEWRIGHT_HOST_DEVICE inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace pipewright::exec::cuda
