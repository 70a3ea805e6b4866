// Causal attention of a rank's own queries over the keys and values of one rank at a time (ring
// attention). Chunks of queries and keys meet pair by pair; of a chunk with itself the later keys
// are left out, of other pairs all queries see all keys, or none does.
#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/context_queries.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/layers/ring_ops.hpp"

namespace pipewright::exec {
namespace {

using cpu::at_row;

/// One head of a chunk of own queries beside one of those of the keys.
struct Pair {
  cpu::HeadOfChunk of;
  int keys = 0;            // the first (0) or second (1) chunk of their rank
  bool is_causal = false;  // the same chunk of the sequence: that the queries meet first

  /// Keys that query i sees.
  int seen(int i, int chunk) const { return is_causal ? i + 1 : chunk; }
};

template <class Each>
void for_each_head(const RingShape& shape, const Each& each) {
  const AttentionShape& own = shape.queries.own;
  for (int sample = 0; sample < own.samples; ++sample) {
    for (int head = 0; head < own.heads; ++head) {
      for_each_pair(shape, [&](const RingPair& pair) {
        each(Pair{{sample, head, pair.queries}, pair.keys, pair.is_causal});
      });
    }
  }
}

struct Places {
  std::size_t query, context, key, value;
};
Places places_of(const ContextShape& s, const Pair& pair) {
  const int d = s.own.head_width();
  const std::size_t key = at_row(s.chunks().first_row(pair.of.sample, pair.keys), s.keys_width()) +
                          at_row(pair.of.head / s.own.queries_a_key(), d);
  return {cpu::queries_at(s.chunks(), pair.of, s.own.qkv_width(), d),
          cpu::queries_at(s.chunks(), pair.of, s.own.width, d), key,
          key + static_cast<std::size_t>(s.own.key_width())};
}
/// In an array [own rows][heads], of the pair's first query.
std::size_t number_at(const ContextShape& s, const Pair& pair) {
  return cpu::queries_at(s.chunks(), pair.of, s.own.heads, 1);
}

float scale_of_scores(const ContextShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.own.head_width()));
}

void score(const ContextShape& s, const Places& at, const float* qkv, const float* keys,
           float* scores) {
  const int n = s.chunk(), d = s.own.head_width();
  cpu::gemm({n, n, d}, scale_of_scores(s), {qkv + at.query, s.own.qkv_width()},
            {keys + at.key, s.keys_width(), true}, 0.0F, scores, n, Numerics::Fast);
}

/// e^(score - shift) of the keys that a query sees, 0 of the others.
void exponentials(int seen, int chunk, float shift, float* scores) {
  for (int j = 0; j < seen; ++j) scores[j] = cpu::clamp_exponent(scores[j] - shift);
  for (int j = 0; j < seen; ++j) scores[j] = cpu::exp_in_range(scores[j]);
  std::fill(scores + seen, scores + chunk, 0.0F);
}

/// Scores become e^(score - largest), and what the queries have met before shrinks to the same.
void take_in(const ContextShape& s, const Pair& pair, const Places& at, float* scores,
             const RingSums& sums) {
  const int n = s.chunk(), d = s.own.head_width(), heads = s.own.heads;
  float* largest = sums.largest + number_at(s, pair);
  float* total = sums.sum + number_at(s, pair);
  float* context = sums.context + at.context;
  for (int i = 0; i < n;
       ++i, scores += n, largest += heads, total += heads, context += s.own.width) {
    const int seen = pair.seen(i, n);
    const float here = cpu::maximum(seen, scores);
    const float now = pair.is_causal ? here : std::max(here, *largest);
    exponentials(seen, n, now, scores);
    const float added = cpu::sum(seen, [scores](int j) { return scores[j]; });
    if (pair.is_causal) {
      *total = added;
    } else {
      const float shrunk = cpu::exp_in_range(cpu::clamp_exponent(*largest - now));
      *total = *total * shrunk + added;
      for (int j = 0; j < d; ++j) context[j] *= shrunk;
    }
    *largest = now;
  }
}

}  // namespace

void ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                            const RingSums& sums, float* scratch) {
  const ContextShape& s = shape.queries;
  const int n = s.chunk(), d = s.own.head_width();
  for_each_head(shape, [&](const Pair& pair) {
    const Places at = places_of(s, pair);
    score(s, at, qkv, keys, scratch);
    take_in(s, pair, at, scratch, sums);
    cpu::gemm({n, d, n}, 1.0F, {scratch, n}, {keys + at.value, s.keys_width()},
              pair.is_causal ? 0.0F : 1.0F, sums.context + at.context, s.own.width, Numerics::Fast);
  });
}

void finish_ring_attention(const ContextShape& s, const RingSums& sums) {
  const int d = s.own.head_width();
  float* context = sums.context;
  const std::size_t all = at_row(s.own.rows(), s.own.heads);
  for (std::size_t k = 0; k < all; ++k, context += d) {
    const float inverse = 1.0F / sums.sum[k];
    for (int j = 0; j < d; ++j) context[j] *= inverse;
    sums.largest[k] += std::log(sums.sum[k]);
  }
}

void context_products(const ContextShape& s, const float* context, const float* dcontext,
                      float* products) {
  const int d = s.own.head_width();
  const std::size_t all = at_row(s.own.rows(), s.own.heads);
  for (std::size_t k = 0; k < all; ++k, context += d, dcontext += d)
    products[k] = cpu::sum(d, [=](int j) { return context[j] * dcontext[j]; });
}

void ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                             const RingRows& rows, float* dqkv, float* dkeys, float* scratch) {
  const ContextShape& s = shape.queries;
  const int n = s.chunk(), d = s.own.head_width(), heads = s.own.heads;
  const int in_qkv = s.own.qkv_width(), in_keys = s.keys_width();
  const float scale = scale_of_scores(s);
  float* const p = scratch;
  float* const ds = scratch + shape.scores();
  for_each_head(shape, [&](const Pair& pair) {
    const Places at = places_of(s, pair);
    const cpu::MatrixView dc{rows.dcontext + at.context, s.own.width};
    score(s, at, qkv, keys, p);
    cpu::gemm({n, n, d}, 1.0F, dc, {keys + at.value, in_keys, true}, 0.0F, ds, n, Numerics::Fast);
    const std::size_t first = number_at(s, pair);
    for (int i = 0; i < n; ++i) {
      const std::size_t row = first + at_row(i, heads);
      float* const pi = p + at_row(i, n);
      float* const di = ds + at_row(i, n);
      exponentials(pair.seen(i, n), n, rows.log_sums[row], pi);
      for (int j = 0; j < n; ++j) di[j] = scale * (pi[j] * (di[j] - rows.products[row]));
    }
    cpu::gemm({n, d, n}, 1.0F, {ds, n}, {keys + at.key, in_keys}, pair.is_causal ? 0.0F : 1.0F,
              dqkv + at.query, in_qkv, Numerics::Fast);
    cpu::gemm({n, d, n}, 1.0F, {p, n, true}, dc, 1.0F, dkeys + at.value, in_keys, Numerics::Fast);
    cpu::gemm({n, d, n}, 1.0F, {ds, n, true}, {qkv + at.query, in_qkv}, 1.0F, dkeys + at.key,
              in_keys, Numerics::Fast);
  });
}

}  // namespace pipewright::exec
