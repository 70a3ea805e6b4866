// Activations of 16-bit numbers, whose exponential and reciprocal are the GPU's own: every bfloat16
// number against double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>

#include "exec/devices/cuda/bfloat16.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::Bfloat16;
using Narrow = std::vector<Bfloat16>;

/// All there are of at most this size.
Narrow all_numbers(float most) {
  Narrow all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Bfloat16 one{};
    one.bits = static_cast<std::uint16_t>(bits);
    if (std::fabs(static_cast<float>(one)) <= most) all.push_back(one);
  }
  return all;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
constexpr double kTwiceSlope = 2 * 0.7978845608, kCubic = 0.044715;
double gelu_sigmoid(double x) { return sigmoid(kTwiceSlope * (x + kCubic * x * x * x)); }
double gelu_gradient(double x) {
  const double s = gelu_sigmoid(x);
  if (s == 0 || s == 1) return s;
  return s + x * s * (1 - s) * kTwiceSlope * (1 + 3 * kCubic * x * x);
}
double silu_gradient(double x) {
  const double s = sigmoid(x);
  return s == 0 || s == 1 ? s : s + x * s * (1 - s);
}

/// Rounding to 8 bits is off by at most 2^-8 of the number. The exponent is below 60 (beyond, all
/// is as at 60) and a few roundings off, so e^exponent is off by at most 60 · 4 · 2^-24, which is
/// below 2^-16; there the instructions' own errors, 2^-22 and 2^-23, are lost. A gradient takes the
/// difference of such terms, none of which is larger than 2.
constexpr double kRounded = 0x1p-8 + 0x1p-15, kOfTerms = 0x1p-18;

void expect_activation(const Narrow& x, const Narrow& found, double of_terms,
                       const std::function<double(double)>& exact) {
  ASSERT_EQ(x.size(), found.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<double>(static_cast<float>(x[i]));
    // What e^-60 is left of a large number is 0 to whoever adds it.
    const double of_zero = 2 * std::exp(-60.0) * std::fabs(at) + 0x1p-126;
    const double wanted = exact(at);
    ASSERT_NEAR(static_cast<double>(static_cast<float>(found[i])), wanted,
                kRounded * std::fabs(wanted) + of_terms + of_zero)
        << at;
  }
}

class CudaActivations : public CudaKernels {
 protected:
  const pipewright_cuda_kernels& bf16() const { return cuda_->bf16; }
};

/// Of larger numbers a cube would be infinite; of a gradient a square times e^-60 would count.
constexpr float kMost = 0x1p40F, kMostOfGradient = 0x1p10F;

TEST_F(CudaActivations, GeluIsRoundedOnce) {
  Narrow x = all_numbers(kMost);
  Bfloat16* const y = up(Narrow(x.size(), NAN));
  done(bf16().gelu_forward(stream(), x.size(), up(x), y));
  expect_activation(x, down(y, x.size()), 0, [](double at) { return at * gelu_sigmoid(at); });
  x = all_numbers(kMostOfGradient);
  done(bf16().gelu_backward_input(stream(), x.size(), up(x), up(Narrow(x.size(), 1.0F)), y));
  expect_activation(x, down(y, x.size()), kOfTerms, gelu_gradient);
}

TEST_F(CudaActivations, GatesAreRoundedOnce) {
  Narrow gates = all_numbers(kMostOfGradient);
  gates.resize(gates.size() / 8 * 8);
  const auto width = static_cast<int>(gates.size());
  Narrow x = gates;
  x.resize(2 * gates.size(), 1.0F);
  Bfloat16* const y = up(Narrow(x.size(), NAN));
  done(bf16().swiglu_forward(stream(), 1, width, up(x), y));
  const auto silu = [](double at) { return at * sigmoid(at); };
  expect_activation(gates, down(y, gates.size()), 0, silu);
  done(bf16().swiglu_backward_input(stream(), 1, width, up(x), up(Narrow(gates.size(), 1.0F)), y));
  expect_activation(gates, down(y, gates.size()), kOfTerms, silu_gradient);
  expect_activation(gates, down(y + gates.size(), gates.size()), 0, silu);
}

TEST_F(CudaActivations, WhatIsNoFiniteNumberStaysSo) {
  const Narrow x{NAN, INFINITY, -INFINITY};
  Bfloat16* const y = up(Narrow(x.size()));
  done(bf16().gelu_forward(stream(), x.size(), up(x), y));
  const Narrow found = down(y, x.size());
  EXPECT_TRUE(std::isnan(static_cast<float>(found[0])));
  EXPECT_EQ(static_cast<float>(found[1]), INFINITY);
  EXPECT_EQ(static_cast<float>(found[2]), -INFINITY);
}

}  // namespace
}  // namespace pipewright::tests
