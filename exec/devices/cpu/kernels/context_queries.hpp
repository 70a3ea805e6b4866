// Where a rank's queries and their scores lie, for the kernels of attention over the keys of all
// ranks (context parallelism).
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/devices/cpu/kernels/causal_softmax.hpp"
#include "exec/layers/context_ops.hpp"

namespace pipewright::exec::cpu {

inline std::size_t at_row(std::int64_t row, int width) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
}

/// One head of a chunk of this rank's queries.
struct HeadOfChunk {
  int sample, head, which;
};

/// In an array of own rows, `width` wide, of which a head has `of_head`.
inline std::size_t queries_at(const ContextChunks& chunks, const HeadOfChunk& of, int width,
                              int of_head) {
  return at_row(chunks.first_row(of.sample, of.which), width) + at_row(of.head, of_head);
}

/// In an array of the scores of so many heads of each sample.
inline std::size_t probabilities_at(const ContextChunks& chunks, int heads, const HeadOfChunk& of) {
  return at_row(std::int64_t{of.sample} * heads + of.head, 1) * chunks.scores() +
         (of.which == 0 ? 0 : chunks.scores(0));
}

inline CausalRows rows_of(const ContextChunks& chunks, int which) {
  return {.rows = chunks.size(),
          .first = chunks.place.chunk(which) * chunks.size(),
          .columns = chunks.visible(which)};
}

}  // namespace pipewright::exec::cpu
