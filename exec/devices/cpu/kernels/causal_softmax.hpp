// The softmax of a square of causal scores, [sequence][sequence]: of row i over its first i + 1
// numbers; the others become 0.
#pragma once

#include <algorithm>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"

namespace pipewright::exec::cpu {

inline void causal_softmax(int sequence, float* scores) {
  for (int i = 0; i < sequence; ++i, scores += sequence) {
    softmax(i + 1, scores, scores);
    std::fill(scores + i + 1, scores + sequence, 0.0F);
  }
}

/// dS = factor · P · (dP - sum(P dP)) row by row; `d` is dP and becomes dS.
inline void causal_softmax_backward(int sequence, float factor, const float* p, float* d) {
  for (int i = 0; i < sequence; ++i, p += sequence, d += sequence) {
    const float dot = sum(i + 1, [p, d](int j) { return p[j] * d[j]; });
    for (int j = 0; j <= i; ++j) d[j] = factor * (p[j] * (d[j] - dot));
    std::fill(d + i + 1, d + sequence, 0.0F);
  }
}

}  // namespace pipewright::exec::cpu
