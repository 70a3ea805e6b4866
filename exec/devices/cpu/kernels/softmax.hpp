// The softmax of one row, shared by attention and the cross-entropy loss.
#pragma once

#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cpu/kernels/reduce.hpp"

namespace pipewright::exec::cpu {

struct SoftmaxSums {
  float maximum = 0;
  float sum = 0;  // of e^(x - maximum)
};

/// p[n] = softmax(x[n]); p may be x. n >= 1.
inline SoftmaxSums softmax(int n, const float* x, float* p) {
  SoftmaxSums sums;
  sums.maximum = maximum(n, x);
  for (int j = 0; j < n; ++j) p[j] = clamp_exponent(x[j] - sums.maximum);
  for (int j = 0; j < n; ++j) p[j] = exp_in_range(p[j]);
  sums.sum = sum(n, [p](int j) { return p[j]; });
  const float inverse = 1.0F / sums.sum;
  for (int j = 0; j < n; ++j) p[j] *= inverse;
  return sums;
}

}  // namespace pipewright::exec::cpu
