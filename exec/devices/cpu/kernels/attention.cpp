// Causal multi-head self-attention: for each sample and head, P = softmax(Q K^T / sqrt(d)) over the
// keys up to the query's own place, and context = P V. Each head is a strided part of the rows, so
// nothing is copied.
#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

using cpu::MatrixView;

/// Where one head of one sample lies in the arrays.
struct Head {
  std::size_t qkv, context, probabilities;
};

Head head_at(const AttentionShape& s, int sample, int head) {
  const auto row = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.sequence);
  const auto width = static_cast<std::size_t>(s.width);
  const auto column = static_cast<std::size_t>(head) * static_cast<std::size_t>(s.head_width());
  const auto square = static_cast<std::size_t>(s.sequence) * static_cast<std::size_t>(s.sequence);
  const auto index = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.heads) +
                     static_cast<std::size_t>(head);
  return {row * 3 * width + column, row * width + column, index * square};
}

/// Queries, keys and values of a head, or their gradients: they lie side by side in each row.
template <class Float>
struct Projections {
  Projections(Float* first_query, int width)
      : q(first_query), k(first_query + width), v(first_query + 2 * width) {}
  Float *q, *k, *v;
};

float score_scale(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_width()));
}

void causal_softmax(int sequence, float* scores) {
  for (int i = 0; i < sequence; ++i, scores += sequence) {
    cpu::softmax(i + 1, scores, scores);
    std::fill(scores + i + 1, scores + sequence, 0.0F);
  }
}

/// dS = P · (dP - sum(P dP)) row by row; 0 beyond the diagonal.
void causal_softmax_backward(int sequence, const float* p, float* d) {
  for (int i = 0; i < sequence; ++i, p += sequence, d += sequence) {
    const float dot = cpu::sum(i + 1, [p, d](int j) { return p[j] * d[j]; });
    for (int j = 0; j <= i; ++j) d[j] = p[j] * (d[j] - dot);
    std::fill(d + i + 1, d + sequence, 0.0F);
  }
}

}  // namespace

void attention_forward(const AttentionShape& s, const float* qkv, float* probabilities,
                       float* context, Numerics numerics) {
  const int t = s.sequence, d = s.head_width(), stride = 3 * s.width;
  const float scale = score_scale(s);
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const Head at = head_at(s, sample, h);
      const Projections in(qkv + at.qkv, s.width);
      float* p = probabilities + at.probabilities;
      cpu::gemm({t, t, d}, scale, {in.q, stride}, {in.k, stride, true}, 0.0F, p, t, numerics);
      causal_softmax(t, p);
      cpu::gemm({t, d, t}, 1.0F, {p, t}, {in.v, stride}, 0.0F, context + at.context, s.width,
                numerics);
    }
  }
}

void attention_backward_input(const AttentionShape& s, const float* qkv, const float* probabilities,
                              const float* dcontext, float* dqkv, float* scratch,
                              Numerics numerics) {
  const int t = s.sequence, d = s.head_width(), stride = 3 * s.width;
  const float scale = score_scale(s);
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const Head at = head_at(s, sample, h);
      const Projections in(qkv + at.qkv, s.width);
      const Projections d_in(dqkv + at.qkv, s.width);
      const float* p = probabilities + at.probabilities;
      const float* dc = dcontext + at.context;
      cpu::gemm({t, d, t}, 1.0F, {p, t, true}, {dc, s.width}, 0.0F, d_in.v, stride, numerics);
      cpu::gemm({t, t, d}, 1.0F, {dc, s.width}, {in.v, stride, true}, 0.0F, scratch, t, numerics);
      causal_softmax_backward(t, p, scratch);
      cpu::gemm({t, d, t}, scale, {scratch, t}, {in.k, stride}, 0.0F, d_in.q, stride, numerics);
      cpu::gemm({t, d, t}, scale, {scratch, t, true}, {in.q, stride}, 0.0F, d_in.k, stride,
                numerics);
    }
  }
}

}  // namespace pipewright::exec
