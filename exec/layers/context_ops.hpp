// The operators of attention where ranks have a part of every sequence each (context parallelism,
// core/model/context_split.hpp), by the rules of exec/layers/ops.hpp: a rank's own queries meet the
// keys and values of all ranks up to their own places. Of keys that no query of a chunk may see
// nothing is computed and nothing kept.
#pragma once

#include <cstddef>

#include "core/model/context_split.hpp"
#include "exec/base/numerics.hpp"
#include "exec/layers/latent_ops.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

/// A rank's queries of a sample, and the keys that they meet.
struct ContextChunks {
  int sequence = 0;  // this rank's rows of a sample
  ContextPlace place;

  int size() const { return sequence / 2; }
  /// Keys that some query of this rank's first or second chunk may see.
  int visible(int which) const { return (place.chunk(which) + 1) * size(); }
  /// Scores of a head in its first chunk, [size][visible], and in the second one; of both on every
  /// rank the same.
  std::size_t scores(int which) const {
    return square() * static_cast<std::size_t>(place.chunk(which) + 1);
  }
  std::size_t scores() const { return square() * static_cast<std::size_t>(place.chunks() + 1); }
  /// Enough for a chunk's scores on any rank.
  std::size_t scratch() const { return square() * static_cast<std::size_t>(place.chunks()); }
  /// The row of a sample's first query in a chunk, among this rank's.
  std::int64_t first_row(int sample, int which) const {
    return std::int64_t{sample} * sequence + which * size();
  }
  /// The row of a sample's first key in a chunk, where the rows of all ranks lie one rank's after
  /// another's: in the holder's.
  std::int64_t row_in_holder(int sample, int chunk) const {
    return first_row(sample, which_of_holder(chunk, place.parts));
  }

 private:
  std::size_t square() const {
    return static_cast<std::size_t>(size()) * static_cast<std::size_t>(size());
  }
};

struct ContextShape {
  AttentionShape own;  // `sequence`: this rank's rows of a sample
  ContextPlace place;

  ContextChunks chunks() const { return {own.sequence, place}; }
  int chunk() const { return chunks().size(); }
  int visible(int which) const { return chunks().visible(which); }
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
  /// The same of one head and sample.
  std::size_t of_head() const { return chunks().scores(); }
  std::size_t scratch() const { return chunks().scratch(); }
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

/// Latent attention (exec/layers/latent_ops.hpp) in the same way. What ranks bring together are two
/// arrays of each, one after the other: its keys and values, its rotary keys.
struct ContextLatentShape {
  LatentShape own;  // `sequence`: this rank's rows of a sample
  ContextPlace place;

  ContextChunks chunks() const { return {own.sequence, place}; }
  int all_rows() const { return place.parts * own.rows(); }
  int keys_width() const { return own.key_value_width() + own.widths.rotary; }
  /// Of their gradients: those of a rotary key by the head that they come from.
  int gradients_width() const { return own.key_value_width() + own.rotary_width(); }
  std::size_t of_own(int width) const {
    return static_cast<std::size_t>(own.rows()) * static_cast<std::size_t>(width);
  }
  std::size_t of_all(int width) const {
    return static_cast<std::size_t>(place.parts) * of_own(width);
  }
  std::size_t probabilities() const {
    return static_cast<std::size_t>(own.samples) * static_cast<std::size_t>(own.heads) *
           chunks().scores();
  }
};

/// queries[own rows][query_width]; keys: [parts], of each [own rows][key_value_width] and [own
/// rows][rotary]. context[own rows][context_width].
void context_latent_forward(const ContextLatentShape& shape, const float* queries,
                            const float* keys, float* probabilities, float* context,
                            Numerics numerics = Numerics::Fast);
/// Of the queries of the first (0) or second (1) chunk: fills their place in dqueries, and adds
/// what they give to dkeys, [parts], of each [own rows][key_value_width] and [own
/// rows][rotary_width].
void context_latent_backward(const ContextLatentShape& shape, int which, const float* queries,
                             const float* keys, const float* probabilities, const float* dcontext,
                             float* dqueries, float* dkeys, float* scratch,
                             Numerics numerics = Numerics::Fast);

}  // namespace pipewright::exec
