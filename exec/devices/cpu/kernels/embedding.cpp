// Embedding of token ids, with learned positions.
#include <algorithm>

#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

std::size_t row_offset(std::int64_t row, int width) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
}

}  // namespace

void embedding_forward(const EmbeddingShape& s, const std::int32_t* ids, const float* tokens,
                       const float* positions, float* y) {
  for (int r = 0; r < s.rows; ++r, y += s.width) {
    const float* token = tokens + row_offset(ids[r], s.width);
    if (positions == nullptr) {
      std::copy(token, token + s.width, y);
      continue;
    }
    const float* position = positions + row_offset(s.position(r), s.width);
    for (int j = 0; j < s.width; ++j) y[j] = token[j] + position[j];
  }
}

void embedding_backward_weight(const EmbeddingShape& s, const std::int32_t* ids, const float* dy,
                               float* dtokens, float* dpositions) {
  for (int r = 0; r < s.rows; ++r, dy += s.width) {
    float* token = dtokens + row_offset(ids[r], s.width);
    for (int j = 0; j < s.width; ++j) token[j] += dy[j];
    if (dpositions == nullptr) continue;
    float* position = dpositions + row_offset(s.position(r), s.width);
    for (int j = 0; j < s.width; ++j) position[j] += dy[j];
  }
}

void look_up(const EmbeddingShape& s, const TokenRange& own, bool alone, const std::int32_t* ids,
             const float* tokens, float* y) {
  for (int r = 0; r < s.rows; ++r, y += s.width) {
    if (own.has(ids[r])) {
      const float* token = tokens + row_offset(ids[r] - own.first, s.width);
      std::copy(token, token + s.width, y);
    } else if (alone) {
      std::fill_n(y, s.width, 0.0F);
    }
  }
}

void add_positions(const EmbeddingShape& s, const float* positions, float* y) {
  for (int r = 0; r < s.rows; ++r, y += s.width) {
    const float* position = positions + row_offset(s.position(r), s.width);
    for (int j = 0; j < s.width; ++j) y[j] += position[j];
  }
}

void look_up_backward_weight(const EmbeddingShape& s, const TokenRange& own,
                             const std::int32_t* ids, const float* dy, float* dtokens,
                             float* dpositions) {
  for (int r = 0; r < s.rows; ++r, dy += s.width) {
    if (own.has(ids[r])) {
      float* token = dtokens + row_offset(ids[r] - own.first, s.width);
      for (int j = 0; j < s.width; ++j) token[j] += dy[j];
    }
    if (dpositions == nullptr) continue;
    float* position = dpositions + row_offset(s.position(r), s.width);
    for (int j = 0; j < s.width; ++j) position[j] += dy[j];
  }
}

}  // namespace pipewright::exec
