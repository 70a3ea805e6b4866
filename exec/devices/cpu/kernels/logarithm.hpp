// The natural logarithm in operations that every machine rounds alike, so that a GPU's has the
// CPU's bits; std::log's last bit is the library's own. Pure function.
#pragma once

#include <bit>
#include <cstdint>

#include "exec/base/host_device.hpp"

namespace pipewright::exec::cpu {

/// ln x with an error below 1.2e-7 times the larger of 1 and |ln x|, for positive normal x; other x
/// give nonsense, but for NaN, which stays NaN.
///
/// x = 2^n m with m in [2/3, 4/3), ln m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| <= 1/5; its
/// series ends at s^9, which leaves out less than 2 s^11 / 11 < 4e-9.
PIPEWRIGHT_HOST_DEVICE inline float log_of_normal(float x) {
  // ln 2 in two parts: the first has few bits, so n times it is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr std::uint32_t kTwoThirds = 0x3F2AAAAB;
  if (x != x) return x;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const auto exponent = static_cast<std::int32_t>(bits - kTwoThirds) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23));
  const auto n = static_cast<float>(exponent);
  const float s = (m - 1.0F) / (m + 1.0F);
  const float square = s * s;
  float p = 2.0F / 9;
  p = p * square + 2.0F / 7;
  p = p * square + 2.0F / 5;
  p = p * square + 2.0F / 3;
  p = p * square + 2.0F;
  return n * kLn2High + (p * s + n * kLn2Low);
}

}  // namespace pipewright::exec::cpu
