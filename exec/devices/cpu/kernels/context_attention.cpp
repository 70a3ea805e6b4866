// Causal attention of a rank's own queries over the keys and values of all ranks (context
// parallelism). Keys lie chunk by chunk on their ranks, so products go chunk by chunk, in the order
// of the sequence: in exact numerics each is the chain that the kernel of whole sequences makes
// (exec/devices/cpu/kernels/attention.cpp), without the zeros of keys that come later.
#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/context_queries.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"

namespace pipewright::exec {
namespace {

using cpu::at_row;
using Queries = cpu::HeadOfChunk;

std::size_t queries_at(const ContextShape& s, const Queries& of, int width) {
  return cpu::queries_at(s.chunks(), of, width, s.own.head_width());
}

/// Where the keys of a chunk begin that serve the head; their values are a key_width behind.
std::size_t keys_at(const ContextShape& s, const Queries& of, int chunk) {
  const std::int64_t member = holder_of_chunk(chunk, s.place.parts);
  const std::int64_t row = member * s.own.rows() + s.chunks().row_in_holder(of.sample, chunk);
  return at_row(row, s.keys_width()) + at_row(of.head / s.own.queries_a_key(), s.own.head_width());
}

float scale_of_scores(const ContextShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.own.head_width()));
}

}  // namespace

void copy_keys(const ContextShape& s, const float* qkv, float* keys) {
  const int width = s.keys_width();
  qkv += s.own.width;
  for (int r = 0; r < s.own.rows(); ++r, qkv += s.own.qkv_width(), keys += width)
    std::copy(qkv, qkv + width, keys);
}

void context_attention_forward(const ContextShape& s, const float* qkv, const float* keys,
                               float* probabilities, float* context, Numerics numerics) {
  const int n = s.chunk(), d = s.own.head_width();
  const float scale = scale_of_scores(s);
  const auto attend = [&](const Queries& of) {
    const int columns = s.visible(of.which), last = s.place.chunk(of.which);
    const float* const q = qkv + queries_at(s, of, s.own.qkv_width());
    float* const p = probabilities + cpu::probabilities_at(s.chunks(), s.own.heads, of);
    float* const c = context + queries_at(s, of, s.own.width);
    for (int k = 0; k <= last; ++k)
      cpu::gemm({n, n, d}, scale, {q, s.own.qkv_width()},
                {keys + keys_at(s, of, k), s.keys_width(), true}, 0.0F, p + k * n, columns,
                numerics);
    cpu::causal_softmax(cpu::rows_of(s.chunks(), of.which), p);
    for (int k = 0; k <= last; ++k)
      cpu::gemm({n, d, n}, 1.0F, {p + k * n, columns},
                {keys + keys_at(s, of, k) + s.own.key_width(), s.keys_width()},
                k == 0 ? 0.0F : 1.0F, c, s.own.width, numerics);
  };
  for (int sample = 0; sample < s.own.samples; ++sample) {
    for (int head = 0; head < s.own.heads; ++head) {
      for (const int which : {0, 1}) attend({sample, head, which});
    }
  }
}

void context_attention_backward(const ContextShape& s, const ContextQueries& queries,
                                const float* qkv, const float* keys, const float* probabilities,
                                const float* dcontext, float* dqkv, float* dkeys, float* scratch,
                                Numerics numerics) {
  const int n = s.chunk(), d = s.own.head_width(), stride = s.own.qkv_width();
  const int columns = s.visible(queries.which), last = s.place.chunk(queries.which);
  const bool is_shared = s.own.queries_a_key() > 1;
  const auto go_back = [&](const Queries& of) {
    const float* const p = probabilities + cpu::probabilities_at(s.chunks(), s.own.heads, of);
    const float* const dc = dcontext + queries_at(s, of, s.own.width);
    const std::size_t query = queries_at(s, of, stride);
    for (int k = 0; k <= last; ++k)
      cpu::gemm({n, n, d}, 1.0F, {dc, s.own.width},
                {keys + keys_at(s, of, k) + s.own.key_width(), s.keys_width(), true}, 0.0F,
                scratch + k * n, columns, numerics);
    cpu::causal_softmax_backward(cpu::rows_of(s.chunks(), of.which),
                                 is_shared ? scale_of_scores(s) : 1.0F, p, scratch);
    for (int k = 0; k <= last; ++k) {
      const std::size_t key = keys_at(s, of, k),
                        value = key + static_cast<std::size_t>(s.own.key_width());
      cpu::gemm({n, d, n}, 1.0F, {scratch + k * n, columns}, {keys + key, s.keys_width()},
                k == 0 ? 0.0F : 1.0F, dqkv + query, stride, numerics);
      cpu::gemm({n, d, n}, 1.0F, {p + k * n, columns, true}, {dc, s.own.width}, 1.0F, dkeys + value,
                s.keys_width(), numerics);
      cpu::gemm({n, d, n}, 1.0F, {scratch + k * n, columns, true}, {qkv + query, stride}, 1.0F,
                dkeys + key, s.keys_width(), numerics);
    }
    if (is_shared) return;
    float* dq = dqkv + query;
    for (int i = 0; i < n; ++i, dq += stride) {
      for (int j = 0; j < d; ++j) dq[j] *= scale_of_scores(s);
    }
  };
  for (int sample = 0; sample < s.own.samples; ++sample) {
    for (int key = 0; key < s.own.key_heads(); ++key)
      go_back({sample, key * s.own.queries_a_key() + queries.head, queries.which});
  }
}

void take_key_gradients(const ContextShape& s, const float* dkeys, float* dqkv) {
  const float scale = s.own.queries_a_key() > 1 ? 1.0F : scale_of_scores(s);
  const int width = s.own.key_width();
  dqkv += s.own.width;
  for (int r = 0; r < s.own.rows(); ++r, dqkv += s.own.qkv_width(), dkeys += s.keys_width()) {
    for (int j = 0; j < width; ++j) dqkv[j] = dkeys[j] * scale;
    std::copy(dkeys + width, dkeys + 2 * width, dqkv + width);
  }
}

}  // namespace pipewright::exec
