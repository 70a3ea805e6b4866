// The operators of attention where keys and values go round the ranks that have a part of every
// sequence each (ring attention; Liu and others, arXiv 2310.01889): a rank's own queries meet one
// rank's keys and values at a time. What they have met is put together as a softmax whose largest
// score and sum grow (Milakov and Gimelshein, arXiv 1805.02867); of all that, one number a row and
// head is kept for I, the logarithm of the sum, from which I computes the probabilities again. In
// fast numerics alone. Rules of exec/layers/ops.hpp.
#pragma once

#include "exec/layers/context_ops.hpp"

namespace pipewright::exec {

/// Whose keys: every rank meets its own first.
struct RingShape {
  ContextShape queries;
  ContextPlace from;

  bool is_own() const { return from == queries.place; }
  /// Chunks of queries and keys that meet, of which every rank has the same number.
  int pairs() const { return is_own() ? 3 : 2; }
  int chunk() const { return queries.chunk(); }
  /// Scores of a head in such a pair.
  std::size_t scores() const {
    return static_cast<std::size_t>(chunk()) * static_cast<std::size_t>(chunk());
  }
  /// For the probabilities of a pair, and their gradients.
  std::size_t scratch() const { return 2 * scores(); }
};

/// Chunks of own queries and of keys that meet, each the first (0) or second (1) of its rank. Of a
/// chunk with itself, which is causal, the later keys are left out.
struct RingPair {
  int queries = 0, keys = 0;
  bool is_causal = false;
};
/// Of each chunk of queries its own keys come first.
template <class Each>
void for_each_pair(const RingShape& shape, const Each& each) {
  for (const int queries : {0, 1}) {
    for (const int keys : {queries, 1 - queries}) {
      const int query_chunk = shape.queries.place.chunk(queries),
                key_chunk = shape.from.chunk(keys);
      if (key_chunk <= query_chunk) each(RingPair{queries, keys, key_chunk == query_chunk});
    }
  }
}

/// By own row: of its keys so far. context[own rows][width], not divided by the sums; largest
/// score and sum of e^(score - largest), [own rows][heads].
struct RingSums {
  float *context, *largest, *sum;
};
/// keys[own rows][keys_width] of the rank `from`.
void ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                            const RingSums& sums, float* scratch);
/// When all keys have come round: the context is divided by the sums, and `largest` becomes the
/// logarithm of the sum of e^score.
void finish_ring_attention(const ContextShape& shape, const RingSums& sums);

/// products[own rows][heads] = of each row and head the sum of context · dcontext.
void context_products(const ContextShape& shape, const float* context, const float* dcontext,
                      float* products);
/// What a row keeps for I.
struct RingRows {
  const float *log_sums, *products, *dcontext;
};
/// Adds to the queries in dqkv[own rows][qkv_width] what these keys give to them (of its own it
/// fills them), and to dkeys[own rows][keys_width] what they get.
void ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                             const RingRows& rows, float* dqkv, float* dkeys, float* scratch);

}  // namespace pipewright::exec
