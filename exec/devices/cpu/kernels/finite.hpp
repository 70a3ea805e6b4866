// Whether numbers are finite, at the speed of reading them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "exec/devices/cpu/kernels/reduce.hpp"

namespace pipewright::exec::cpu {

/// True if none of them is infinite or no number: times 0 these are no number, and all others 0.
inline bool all_finite(std::span<const float> x) {
  constexpr std::size_t kPiece = 1 << 20;
  for (; !x.empty(); x = x.subspan(std::min(kPiece, x.size()))) {
    const float* at = x.data();
    const int n = static_cast<int>(std::min(kPiece, x.size()));
    if (sum(n, [at](int i) { return at[i] * 0.0F; }) != 0.0F) return false;
  }
  return true;
}

}  // namespace pipewright::exec::cpu
