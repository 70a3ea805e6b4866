// The operators of attention where ranks have a part of every sequence each (context parallelism,
// core/model/context_split.hpp), by the rules of exec/layers/ops.hpp: a rank's own queries meet the
// keys and values of all ranks up to their own places. Of keys that no query of a chunk may see
// nothing is computed and nothing kept.
#pragma once

#include <cstddef>

#include "core/model/context_split.hpp"
#include "exec/base/numerics.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

struct ContextShape {
  AttentionShape own;  // `sequence`: this rank's rows of a sample
  ContextPlace place;

  int chunk() const { return own.sequence / 2; }
  /// Keys that some query of this rank's first or second chunk may see.
  int visible(int which) const { return (place.chunk(which) + 1) * chunk(); }
  /// Of keys and values, which lie side by side.
  int keys_width() const { return 2 * own.key_width(); }
  int all_rows() const { return place.parts * own.rows(); }
  std::size_t own_keys() const {
    return static_cast<std::size_t>(own.rows()) * static_cast<std::size_t>(keys_width());
  }
  std::size_t all_keys() const { return static_cast<std::size_t>(place.parts) * own_keys(); }
  /// Of all samples and heads: [chunk][visible] of the first chunk, then of the second one.
  std::size_t probabilities() const {
    return static_cast<std::size_t>(own.samples) * static_cast<std::size_t>(own.heads) * of_head();
  }
  /// The same of one head and sample: on every rank the same.
  std::size_t of_head() const {
    return static_cast<std::size_t>(chunk()) * static_cast<std::size_t>(chunk()) *
           static_cast<std::size_t>(place.chunks() + 1);
  }
  /// Enough for a chunk's scores on any rank.
  std::size_t scratch() const {
    return static_cast<std::size_t>(chunk()) * static_cast<std::size_t>(chunk()) *
           static_cast<std::size_t>(place.chunks());
  }
};

/// A part of a rank's queries: of each head of keys one of those heads that share it, in its first
/// (0) or second (1) chunk.
struct ContextQueries {
  int head = 0, which = 0;
};

/// keys[own rows][keys_width] = the keys and values in qkv[own rows][qkv_width].
void copy_keys(const ContextShape& shape, const float* qkv, float* keys);
/// keys: those of all ranks, [parts][own rows][keys_width]. context[own rows][width].
void context_attention_forward(const ContextShape& shape, const float* qkv, const float* keys,
                               float* probabilities, float* context,
                               Numerics numerics = Numerics::Fast);
/// Of these queries: fills their place in dqkv[own rows][qkv_width], and adds what they give to
/// dkeys, as keys, which is without the scale of scores where heads do not share keys.
void context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                const float* qkv, const float* keys, const float* probabilities,
                                const float* dcontext, float* dqkv, float* dkeys, float* scratch,
                                Numerics numerics = Numerics::Fast);
/// The sum of own keys' gradients, [own rows][keys_width], becomes that of dqkv's keys and values.
void take_key_gradients(const ContextShape& shape, const float* dkeys, float* dqkv);

}  // namespace pipewright::exec
