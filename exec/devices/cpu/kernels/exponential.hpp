// e^x for loops that the compiler turns into vector instructions, which it cannot do with
// std::exp. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "exec/base/host_device.hpp"

namespace pipewright::exec::cpu {

inline constexpr float kLeastExponent = -87.0F, kMostExponent = 88.0F;

/// The nearest number for which exp_in_range() is defined; NaN stays NaN.
PIPEWRIGHT_HOST_DEVICE inline float clamp_exponent(float x) {
  x = x < kLeastExponent ? kLeastExponent : x;
  return x > kMostExponent ? kMostExponent : x;
}

/// e^x with a relative error below 3e-7 for x in [-87, 88], where it is a normal number. NaN stays
/// NaN; other x give nonsense. Clamp in a loop of its own: together with this, compilers make
/// branches of the comparisons and copies of the polynomial for each of them.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2. e^r is its Taylor polynomial of degree 7, which is off by
/// r^8 / 8! < 6e-9; 2^n is put together from its bits.
PIPEWRIGHT_HOST_DEVICE inline float exp_in_range(float x) {
  constexpr float kLog2E = 1.44269504F;
  // ln 2 in two parts: the first has few bits, so n times it is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 · 2^23 leaves no bits for a fraction: this rounds to the nearest integer, which then
  // stands in the low bits.
  constexpr float kRound = 12582912.0F;

  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // Unsigned, because a NaN makes arbitrary bits of it and shifting those must still be defined.
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) + 127U;
  return p * std::bit_cast<float>(exponent << 23);
}

}  // namespace pipewright::exec::cpu
