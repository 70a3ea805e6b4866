// Which threads share a row, or a column, that a kernel adds up: by numerics, and by how long it
// is. Each has run(), which launches by a Launcher of exec/devices/cuda/kernel_table.hpp.
#pragma once

#include <algorithm>
#include <array>

#include "exec/devices/cuda/column_tiles.hpp"
#include "exec/devices/cuda/columns.hpp"
#include "exec/devices/cuda/held_rows.hpp"
#include "exec/devices/cuda/table_arrays.hpp"

namespace pipewright::exec::cuda {

/// Who shares a row: a few lanes, whose sums have the CPU's order, or a block.
template <class Launcher>
struct ExactRows {
  template <class F>
  static int run(void* stream, std::size_t rows, F f) {
    return Launcher::rows(stream, rows, f);
  }
};
/// Rows that are read more than once are held where they fit.
template <class Launcher>
struct WideRows {
  template <class F>
  static int run(void* stream, std::size_t rows, F f) {
    if constexpr (requires { f.can_be_held(); }) {
      const HeldShape shape = f.can_be_held() ? held_shape(f.width) : HeldShape();
      if (shape.packs == 1) return Launcher::template held_rows<1>(stream, rows, shape.lanes, f);
      if (shape.packs == 2) return Launcher::template held_rows<2>(stream, rows, shape.lanes, f);
      if (shape.packs == 3) return Launcher::template held_rows<3>(stream, rows, shape.lanes, f);
      if (shape.packs == 4) return Launcher::template held_rows<4>(stream, rows, shape.lanes, f);
      static_assert(kMostHeldPacks == 4);
    }
    return Launcher::wide_rows(stream, rows, f);
  }
};
/// Of attention: short rows are many, and half a warp has one.
template <class Launcher>
struct AttentionRows {
  static constexpr int kLongSequence = 512;
  template <class F>
  static int run(void* stream, std::size_t rows, F f) {
    return f.width < kLongSequence ? Launcher::rows(stream, rows, f)
                                   : Launcher::wide_rows(stream, rows, f);
  }
};

/// The same of planes of images.
template <class Launcher>
struct PlaneRows {
  static constexpr int kLargePlane = 512;
  template <class F>
  static int run(void* stream, std::size_t rows, F f) {
    return f.width < kLargePlane ? Launcher::rows(stream, rows, f)
                                 : Launcher::wide_rows(stream, rows, f);
  }
};

/// Of sums of columns, an array each.
template <int n>
using Outputs = std::array<float*, n>;

/// In the CPU's order.
template <class Launcher>
struct ExactColumns {
  template <class Term>
  static int run(void* s, int rows, int width, const Term& term, float*, int adds,
                 const Outputs<Term::kSums>& sums) {
    ColumnSums<Term> all{count(rows), count(width), term, adds != 0, {}};
    std::copy(sums.begin(), sums.end(), all.to);
    return Launcher::elements(s, count(width), all);
  }
};

/// In tiles, and where these are many in two stages; of few rows as the CPU adds them up.
template <class Launcher>
struct TiledColumns {
  template <class Term>
  static int run(void* s, int rows, int width, const Term& term, float* scratch, int adds,
                 const Outputs<Term::kSums>& sums) {
    if (count(rows) < kLeastRowsOfPart)
      return ExactColumns<Launcher>::run(s, rows, width, term, scratch, adds, sums);
    const std::size_t columns = count(width), parts = parts_of_rows(count(rows), columns);
    if (parts == 1) return tiles(s, count(rows), columns, 1, term, adds, sums);
    constexpr int kSums = Term::kSums;
    ArrayTerm<float, kSums> of_parts{};
    Outputs<kSums> partial{};
    for (std::size_t k = 0; k < kSums; ++k)
      of_parts.from[k] = partial[k] = scratch + k * parts * columns;
    const int failed = tiles(s, count(rows), columns, parts, term, 0, partial);
    return failed != 0 ? failed : tiles(s, parts, columns, 1, of_parts, adds, sums);
  }

 private:
  template <class Term>
  static int tiles(void* s, std::size_t rows, std::size_t width, std::size_t parts,
                   const Term& term, int adds, const Outputs<Term::kSums>& sums) {
    ColumnTiles<Term> all{rows, width, parts, term, false, adds != 0, {}};
    all.in_packs = width % kRowPack == 0 && term.can_be_packs();
    std::copy(sums.begin(), sums.end(), all.to);
    return Launcher::tiles(s, all);
  }
};

}  // namespace pipewright::exec::cuda
