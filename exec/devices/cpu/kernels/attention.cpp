// Causal multi-head self-attention: for each sample and head, P = softmax(Q K^T / sqrt(d)) over the
// keys up to the query's own place, and context = P V. Each head is a strided part of the rows, so
// nothing is copied.
#include <cmath>

#include "exec/devices/cpu/kernels/causal_softmax.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

using cpu::MatrixView;

/// Where one head of one sample lies in the arrays.
struct Head {
  std::size_t query, key, value;  // of qkv
  std::size_t context, probabilities;
};

Head head_at(const AttentionShape& s, int sample, int head) {
  const auto row = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.sequence);
  const auto width = static_cast<std::size_t>(s.width);
  const auto first = row * static_cast<std::size_t>(s.qkv_width());
  const auto column = static_cast<std::size_t>(head) * static_cast<std::size_t>(s.head_width());
  const auto key =
      first + width +
      static_cast<std::size_t>(head / s.queries_a_key()) * static_cast<std::size_t>(s.head_width());
  const auto square = static_cast<std::size_t>(s.sequence) * static_cast<std::size_t>(s.sequence);
  const auto index = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.heads) +
                     static_cast<std::size_t>(head);
  return {.query = first + column,
          .key = key,
          .value = key + static_cast<std::size_t>(s.key_width()),
          .context = row * width + column,
          .probabilities = index * square};
}

float score_scale(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_width()));
}

}  // namespace

void attention_forward(const AttentionShape& s, const float* qkv, float* probabilities,
                       float* context, Numerics numerics) {
  const int t = s.sequence, d = s.head_width(), stride = s.qkv_width();
  const float scale = score_scale(s);
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const Head at = head_at(s, sample, h);
      float* p = probabilities + at.probabilities;
      cpu::gemm({t, t, d}, scale, {qkv + at.query, stride}, {qkv + at.key, stride, true}, 0.0F, p,
                t, numerics);
      cpu::causal_softmax(cpu::square(t), p);
      cpu::gemm({t, d, t}, 1.0F, {p, t}, {qkv + at.value, stride}, 0.0F, context + at.context,
                s.width, numerics);
    }
  }
}

void attention_backward_input(const AttentionShape& s, const float* qkv, const float* probabilities,
                              const float* dcontext, float* dqkv, float* scratch,
                              Numerics numerics) {
  const int t = s.sequence, d = s.head_width(), stride = s.qkv_width();
  // A canonical product that goes on from what is there cannot scale: then dS is scaled.
  const bool is_shared = s.queries_a_key() > 1;
  const float scale = is_shared ? 1.0F : score_scale(s);
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const Head at = head_at(s, sample, h);
      const float* p = probabilities + at.probabilities;
      const float* dc = dcontext + at.context;
      // Heads that share keys and values add to their gradients, one after the other.
      const float before = h % s.queries_a_key() == 0 ? 0.0F : 1.0F;
      cpu::gemm({t, d, t}, 1.0F, {p, t, true}, {dc, s.width}, before, dqkv + at.value, stride,
                numerics);
      cpu::gemm({t, t, d}, 1.0F, {dc, s.width}, {qkv + at.value, stride, true}, 0.0F, scratch, t,
                numerics);
      cpu::causal_softmax_backward(cpu::square(t), is_shared ? score_scale(s) : 1.0F, p, scratch);
      cpu::gemm({t, d, t}, scale, {scratch, t}, {qkv + at.key, stride}, 0.0F, dqkv + at.query,
                stride, numerics);
      cpu::gemm({t, d, t}, scale, {scratch, t, true}, {qkv + at.query, stride}, before,
                dqkv + at.key, stride, numerics);
    }
  }
}

}  // namespace pipewright::exec
