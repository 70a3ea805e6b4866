// The softmax of causal scores, [rows][columns] of queries one after another: of row i over its
// first so many numbers; the others become 0.
#pragma once

#include <algorithm>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"

namespace pipewright::exec::cpu {

/// The first query is at place `first` of its sequence, and sees first + 1 keys.
struct CausalRows {
  int rows = 0, first = 0, columns = 0;
};
/// Of a whole sequence.
inline CausalRows square(int sequence) { return {sequence, 0, sequence}; }

inline void causal_softmax(const CausalRows& of, float* scores) {
  for (int i = of.first; i < of.first + of.rows; ++i, scores += of.columns) {
    softmax(i + 1, scores, scores);
    std::fill(scores + i + 1, scores + of.columns, 0.0F);
  }
}

/// dS = factor · P · (dP - sum(P dP)) row by row; `d` is dP and becomes dS.
inline void causal_softmax_backward(const CausalRows& of, float factor, const float* p, float* d) {
  for (int i = of.first; i < of.first + of.rows; ++i, p += of.columns, d += of.columns) {
    const float dot = sum(i + 1, [p, d](int j) { return p[j] * d[j]; });
    for (int j = 0; j <= i; ++j) d[j] = factor * (p[j] * (d[j] - dot));
    std::fill(d + i + 1, d + of.columns, 0.0F);
  }
}

}  // namespace pipewright::exec::cpu
