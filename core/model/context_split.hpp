// Which positions of every sequence a rank of cp holds (context parallelism). Of n ranks rank r has
// chunks r and 2n - 1 - r of 2n, as Megatron core divides them: under a causal mask all ranks then
// have as many pairs of a query and a key. Its rows of a sample are those of the first chunk and
// then those of the second. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/model.hpp"
#include "core/model/tensor_split.hpp"

namespace pipewright {

/// One of the ranks along cp.
struct ContextPlace {
  int index = 0, parts = 1;

  int chunks() const { return 2 * parts; }
  /// The number of its first (0) or second (1) chunk.
  int chunk(int which) const { return which == 0 ? index : chunks() - 1 - index; }
  /// Of a sample in which it has so many rows: where its row i lies.
  int position(int rows, int i) const {
    if (parts == 1) return i;
    const int size = rows / 2;
    return i < size ? chunk(0) * size + i : chunk(1) * size + (i - size);
  }

  bool operator==(const ContextPlace&) const = default;
};

/// The rank, of so many, that holds a chunk, and whether it is its first (0) or second (1) one.
inline int holder_of_chunk(int chunk, int parts) {
  return chunk < parts ? chunk : 2 * parts - 1 - chunk;
}
inline int which_of_holder(int chunk, int parts) { return chunk < parts ? 0 : 1; }

/// Of a micro-batch whose samples lie one after another, the row that is row `own` of this rank,
/// which has so many rows of each sample.
inline std::int64_t row_of_all(const ContextPlace& place, int rows_of_sample, std::int64_t own) {
  const std::int64_t sample = own / rows_of_sample;
  const int position = place.position(rows_of_sample, static_cast<int>(own % rows_of_sample));
  return sample * rows_of_sample * place.parts + position;
}

/// Tokens of a sample that one of so many ranks has.
inline int own_sequence(int sequence, int ranks) { return sequence / ranks; }

/// Whether a layer of this kind can have some rows of a micro-batch, on a rank whose others along
/// tp have the rest: what it does with a row depends on that row alone, or it gets the others.
bool takes_some_rows(LayerKind kind);
/// The same along cp: or it asks the others for what it has to know of their rows, keys or how
/// often an expert was chosen.
bool divides_sequences(LayerKind kind);

/// Why so many ranks along cp cannot divide the model's sequences, as a sentence with what does not
/// do it and the nearest that does; "" if they can.
std::string context_fault(const Model& model, int ranks);
/// The same of ranks that divide in other ways, too.
std::string context_fault(const Model& model, const StageDivision& ranks);

}  // namespace pipewright
