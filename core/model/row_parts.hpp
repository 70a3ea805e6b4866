// Which rows of a micro-batch a rank has where ranks divide them: those along cp have chunks of
// every sequence (core/model/context_split.hpp), and under sequence parallelism those along tp have
// consecutive ones of the rows of their place along cp. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <numeric>

#include "core/model/context_split.hpp"

namespace pipewright {

struct RowParts {
  int samples = 1,
      sequence = 1;  // of a micro-batch, and the rows of each that a place along cp has
  ContextPlace context = {};
  int tensor = 0, tensor_parts = 1;  // its place along tp, of so many that have rows of their own

  /// Ranks that have a part of the rows each, and the number of this one: tp varies fastest.
  int parts() const { return context.parts * tensor_parts; }
  int index() const { return context.index * tensor_parts + tensor; }
  std::int64_t rows() const { return std::int64_t{samples} * (sequence / tensor_parts); }
  /// Its rows are stretches of consecutive ones of the micro-batch, of so many rows each.
  std::int64_t stretch() const {
    return context.parts == 1 ? rows() : std::gcd(std::int64_t{sequence / 2}, rows());
  }
  int stretches() const { return static_cast<int>(rows() / stretch()); }
};

/// Of a rank whose place along cp has rows [begin, end) of it, which are whole stretches: visit(
/// place along tp, number of its stretch) in their order.
template <class Visit>
void for_each_stretch_of(const RowParts& rows, std::int64_t begin, std::int64_t end, Visit visit) {
  const std::int64_t each = rows.stretch(), of_rank = rows.stretches();
  for (std::int64_t s = begin / each; s < end / each; ++s)
    visit(static_cast<int>(s / of_rank), static_cast<int>(s % of_rank));
}

/// The stretches of all ranks in the order of the micro-batch: visit(RowParts::index() of the rank,
/// number of its stretch).
template <class Visit>
void for_each_stretch(const RowParts& rows, Visit visit) {
  const int places = rows.context.parts;
  if (places == 1) return for_each_stretch_of(rows, 0, rows.rows() * rows.tensor_parts, visit);
  const std::int64_t chunk = rows.sequence / 2;
  for (int sample = 0; sample < rows.samples; ++sample) {
    for (int c = 0; c < rows.context.chunks(); ++c) {
      const int holder = holder_of_chunk(c, places);
      const std::int64_t begin =
          std::int64_t{sample} * rows.sequence + which_of_holder(c, places) * chunk;
      for_each_stretch_of(rows, begin, begin + chunk, [&](int tensor, int stretch) {
        visit(holder * rows.tensor_parts + tensor, stretch);
      });
    }
  }
}

}  // namespace pipewright
