// The operators of latent attention (core/model/latent.hpp), by the rules of exec/layers/ops.hpp:
// causal self-attention whose queries and keys have a part without positions, and one with them
// that is the same key for all heads; values have a width of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/model.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec {

struct LatentShape {
  int samples = 0, sequence = 0, heads = 0;
  LatentWidths widths;

  int rows() const { return static_cast<int>(std::int64_t{samples} * sequence); }
  int query_width() const { return heads * widths.query(); }
  int key_value_width() const { return heads * (widths.plain + widths.value); }
  int rotary_width() const { return heads * widths.rotary; }
  int context_width() const { return heads * widths.value; }
  std::size_t probabilities() const {
    return static_cast<std::size_t>(samples) * static_cast<std::size_t>(heads) * scratch();
  }
  std::size_t scratch() const {
    return static_cast<std::size_t>(sequence) * static_cast<std::size_t>(sequence);
  }
  /// As those of AttentionShape (exec/layers/ops.hpp).
  std::size_t log_sums() const {
    return static_cast<std::size_t>(rows()) * static_cast<std::size_t>(heads);
  }
  bool is_fusable() const {
    return widths.plain % 8 == 0 && widths.rotary % 8 == 0 && widths.value % 8 == 0 &&
           widths.query() <= 192 && widths.value <= 128;
  }
};
/// queries[rows][heads][plain + rotary], keys_values[rows][heads][plain + value] and
/// rotary_key[rows][rotary]; probabilities[samples][heads][sequence][sequence] are kept for I.
struct LatentInputs {
  const float *queries, *keys_values, *rotary_key;
};
/// Their gradients, that of the rotary key by the head that it comes from: [rows][heads][rotary].
struct LatentGradients {
  float *queries, *keys_values, *rotary_keys;
};
/// context[rows][heads][value] = P V, where P = softmax(Q K^T / sqrt(plain + rotary)) over the keys
/// up to the query's own place.
void latent_attention_forward(const LatentShape& shape, const LatentInputs& inputs,
                              float* probabilities, float* context,
                              Numerics numerics = Numerics::Fast);
/// scratch[sequence][sequence].
void latent_attention_backward_input(const LatentShape& shape, const LatentInputs& inputs,
                                     const float* probabilities, const float* dcontext,
                                     const LatentGradients& gradients, float* scratch,
                                     Numerics numerics = Numerics::Fast);
/// y[rows][width] += by_head[rows][heads][width], head by head.
void add_heads(int rows, int heads, int width, const float* by_head, float* y);

}  // namespace pipewright::exec
