// The sigmoid of the elements of an array, shared by activations and routers.
#pragma once

#include <cstddef>

#include "exec/devices/cpu/kernels/exponential.hpp"

namespace pipewright::exec::cpu {

/// s = 1 / (1 + e^minus(i)) for n elements.
template <class Minus>
inline void sigmoid_of_negative(std::size_t n, Minus minus, float* s) {
  // Beyond e^60 the result is 0 to any float that is added to it; stopping there keeps denormal
  // numbers, which are slow, out of the matrices. NaN stays NaN.
  constexpr float kEnough = 60.0F;
  for (std::size_t i = 0; i < n; ++i) {
    const float negative = minus(i);
    const float below = negative > kEnough ? kEnough : negative;
    s[i] = below < -kEnough ? -kEnough : below;
  }
  for (std::size_t i = 0; i < n; ++i) s[i] = 1.0F / (1.0F + exp_in_range(s[i]));
}

inline void sigmoid(std::size_t n, const float* x, float* s) {
  sigmoid_of_negative(
      n, [x](std::size_t i) { return -x[i]; }, s);
}

}  // namespace pipewright::exec::cpu
