// Numbers of 16 bits: the first half of a float32, rounded to nearest, ties to even. Memory alone
// holds them; they are read as floats, and floats are computed with. A NaN becomes the one NaN that
// GPUs make of it.
#pragma once

#include <bit>
#include <cstdint>

#include "exec/base/host_device.hpp"

namespace pipewright::exec::cuda {

struct Bfloat16 {
  std::uint16_t bits;

  Bfloat16() = default;
  PIPEWRIGHT_HOST_DEVICE Bfloat16(float x) : bits(rounded(x)) {}
  PIPEWRIGHT_HOST_DEVICE operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  PIPEWRIGHT_HOST_DEVICE static std::uint16_t rounded(float x) {
#if defined(__CUDA_ARCH__)
    std::uint16_t half = 0;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    if (x != x) return 0x7FFF;
    const auto word = std::bit_cast<std::uint32_t>(x);
    return static_cast<std::uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
#endif
  }
};

}  // namespace pipewright::exec::cuda
