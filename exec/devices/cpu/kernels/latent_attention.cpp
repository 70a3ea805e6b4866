// Latent attention, head by head. Each head is a strided part of the rows, and scores are the sum
// of two products, so keys are never put together.
#include <cmath>

#include "exec/devices/cpu/kernels/causal_softmax.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/layers/latent_ops.hpp"

namespace pipewright::exec {
namespace {

/// Where one head of one sample lies in the arrays.
struct LatentHead {
  std::size_t query, rotary_query;  // of queries
  std::size_t key, value;           // of keys_values
  std::size_t rotary_key;           // of the one key
  std::size_t own_rotary_key;       // of their gradients by head
  std::size_t context, probabilities;
};

LatentHead latent_head_at(const LatentShape& s, int sample, int head) {
  const auto row = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.sequence);
  const auto h = static_cast<std::size_t>(head);
  const auto in = [&](int width, int head_width) {
    return row * static_cast<std::size_t>(width) + h * static_cast<std::size_t>(head_width);
  };
  const auto plain = static_cast<std::size_t>(s.widths.plain);
  const std::size_t query = in(s.query_width(), s.widths.query());
  const std::size_t key = in(s.key_value_width(), s.widths.plain + s.widths.value);
  const auto index = static_cast<std::size_t>(sample) * static_cast<std::size_t>(s.heads) + h;
  return {.query = query,
          .rotary_query = query + plain,
          .key = key,
          .value = key + plain,
          .rotary_key = row * static_cast<std::size_t>(s.widths.rotary),
          .own_rotary_key = in(s.rotary_width(), s.widths.rotary),
          .context = in(s.context_width(), s.widths.value),
          .probabilities = index * s.scratch()};
}

float latent_score_scale(const LatentShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.widths.query()));
}

}  // namespace

void latent_attention_forward(const LatentShape& s, const LatentInputs& in, float* probabilities,
                              float* context, Numerics numerics) {
  const int t = s.sequence, queries = s.query_width(), keys = s.key_value_width();
  const float scale = latent_score_scale(s);
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const LatentHead at = latent_head_at(s, sample, h);
      float* p = probabilities + at.probabilities;
      cpu::gemm({t, t, s.widths.plain}, 1.0F, {in.queries + at.query, queries},
                {in.keys_values + at.key, keys, true}, 0.0F, p, t, numerics);
      cpu::gemm({t, t, s.widths.rotary}, 1.0F, {in.queries + at.rotary_query, queries},
                {in.rotary_key + at.rotary_key, s.widths.rotary, true}, 1.0F, p, t, numerics);
      // A canonical product that goes on from what is there cannot scale.
      for (std::size_t i = 0; i < s.scratch(); ++i) p[i] *= scale;
      cpu::causal_softmax(cpu::square(t), p);
      cpu::gemm({t, s.widths.value, t}, 1.0F, {p, t}, {in.keys_values + at.value, keys}, 0.0F,
                context + at.context, s.context_width(), numerics);
    }
  }
}

void latent_attention_backward_input(const LatentShape& s, const LatentInputs& in,
                                     const float* probabilities, const float* dcontext,
                                     const LatentGradients& out, float* scratch,
                                     Numerics numerics) {
  const int t = s.sequence, queries = s.query_width(), keys = s.key_value_width();
  const int plain = s.widths.plain, rotary = s.widths.rotary, value = s.widths.value;
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int h = 0; h < s.heads; ++h) {
      const LatentHead at = latent_head_at(s, sample, h);
      const float* p = probabilities + at.probabilities;
      const float* dc = dcontext + at.context;
      cpu::gemm({t, value, t}, 1.0F, {p, t, true}, {dc, s.context_width()}, 0.0F,
                out.keys_values + at.value, keys, numerics);
      cpu::gemm({t, t, value}, 1.0F, {dc, s.context_width()},
                {in.keys_values + at.value, keys, true}, 0.0F, scratch, t, numerics);
      cpu::causal_softmax_backward(cpu::square(t), latent_score_scale(s), p, scratch);
      cpu::gemm({t, plain, t}, 1.0F, {scratch, t}, {in.keys_values + at.key, keys}, 0.0F,
                out.queries + at.query, queries, numerics);
      cpu::gemm({t, rotary, t}, 1.0F, {scratch, t}, {in.rotary_key + at.rotary_key, rotary}, 0.0F,
                out.queries + at.rotary_query, queries, numerics);
      cpu::gemm({t, plain, t}, 1.0F, {scratch, t, true}, {in.queries + at.query, queries}, 0.0F,
                out.keys_values + at.key, keys, numerics);
      cpu::gemm({t, rotary, t}, 1.0F, {scratch, t, true}, {in.queries + at.rotary_query, queries},
                0.0F, out.rotary_keys + at.own_rotary_key, s.rotary_width(), numerics);
    }
  }
}

void add_heads(int rows, int heads, int width, const float* by_head, float* y) {
  for (int r = 0; r < rows; ++r, y += width) {
    for (int h = 0; h < heads; ++h, by_head += width) {
      for (int j = 0; j < width; ++j) y[j] += by_head[j];
    }
  }
}

}  // namespace pipewright::exec
