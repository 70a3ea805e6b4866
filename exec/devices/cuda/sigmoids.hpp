// The sigmoid inside of activations. Tables of float32 have the CPU's bits: the exponential is a
// polynomial and the division is IEEE's, some forty instructions an element, which is more than an
// SM can issue while memory brings the elements (decision 112). Where the result is rounded to 16
// bits, the GPU's own exponential and reciprocal are as good.
#pragma once

#include <cmath>

#include "exec/base/host_device.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/products.hpp"

namespace pipewright::exec::cuda {

inline constexpr float kGeluSlope = 0.7978845608F, kGeluCubic = 0.044715F;
/// e^60 is all there is to any float that is added to it.
inline constexpr float kEnoughOfExponent = 60.0F;

struct ExactSigmoid {
  /// 1 / (1 + e^minus), as exec/devices/cpu/kernels/sigmoid.hpp has it.
  PIPEWRIGHT_HOST_DEVICE static float of_negative(float minus) {
    const float below = minus > kEnoughOfExponent ? kEnoughOfExponent : minus;
    return 1.0F /
           (1.0F + cpu::exp_in_range(below < -kEnoughOfExponent ? -kEnoughOfExponent : below));
  }
  /// gelu(x) = x · of_gelu(x), the tanh form (exec/devices/cpu/kernels/elementwise.cpp).
  PIPEWRIGHT_HOST_DEVICE static float of_gelu(float x) {
    return of_negative(-2.0F * kGeluSlope * (x + kGeluCubic * x * x * x));
  }
};

/// Relative errors of a GPU: 2^x 2^-22, 1 / x 2^-23 (PTX ISA, ex2.approx and rcp.approx; the same
/// as 2 and 1 ulp). The host's are smaller.
struct FastSigmoid {
  PIPEWRIGHT_HOST_DEVICE static float of_negative(float minus) { return of_power(kLog2E * minus); }
  PIPEWRIGHT_HOST_DEVICE static float of_gelu(float x) {
    constexpr float kOfX = -2.0F * kLog2E * kGeluSlope, kOfCube = kOfX * kGeluCubic;
    return of_power(x * fused(x * x, kOfCube, kOfX));
  }

 private:
  static constexpr float kLog2E = 1.44269504F;

  /// 1 / (1 + 2^power). What is below all bounds becomes 1; NaN stays NaN.
  PIPEWRIGHT_HOST_DEVICE static float of_power(float power) {
    constexpr float kEnough = kEnoughOfExponent * kLog2E;
    return reciprocal(1.0F + power_of_two(power > kEnough ? kEnough : power));
  }
  PIPEWRIGHT_HOST_DEVICE static float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
    float power = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return std::exp2(x);
#endif
  }
  PIPEWRIGHT_HOST_DEVICE static float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
    float inverse = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
#else
    return 1.0F / x;
#endif
  }
};

/// That of a table whose numbers are T.
template <class T>
struct SigmoidFor {
  using Type = ExactSigmoid;
};
template <>
struct SigmoidFor<Bfloat16> {
  using Type = FastSigmoid;
};
template <class T>
using Sigmoid = typename SigmoidFor<T>::Type;

}  // namespace pipewright::exec::cuda
