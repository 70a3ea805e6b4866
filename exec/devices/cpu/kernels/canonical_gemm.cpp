// The loops around the tiles: blocks of a and b are copied so that a tile reads both in order, as
// in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008). A chain
// that is longer than a block goes on from c, which loses nothing: c is a float as the registers
// are.
#include "exec/devices/cpu/kernels/canonical_gemm.hpp"

#include <algorithm>
#include <cstddef>

#include "core/base/error.hpp"

namespace pipewright::exec::cpu {
namespace {

// A block of a stays in the second-level cache, kColumns columns of b's in the first.
constexpr int kRows = 168, kDepth = 192, kColumns = 512;
constexpr int kWidestTile = 32;

struct Workspace {
  alignas(64) float a[kRows * kDepth];
  alignas(64) float b[(kColumns + kWidestTile) * kDepth];
};

/// Element (row, column) of the matrix that the view shows.
const float* at(const MatrixView& m, int row, int column) {
  const std::ptrdiff_t across = m.transposed ? column : row, along = m.transposed ? row : column;
  return m.data + across * m.stride + along;
}

/// out[depth][rows] from the rows x depth matrix whose first element is `from`.
void pack_rows(const float* from, std::ptrdiff_t stride, bool transposed, int rows, int depth,
               float* out) {
  if (transposed) {
    for (int k = 0; k < depth; ++k, from += stride, out += rows) std::copy_n(from, rows, out);
    return;
  }
  for (int r = 0; r < rows; ++r, from += stride) {
    float* to = out + r;
    for (int k = 0; k < depth; ++k, to += rows) *to = from[k];
  }
}

/// out[depth][width] from the depth x columns matrix, with 0 beyond its columns.
void pack_columns(const float* from, std::ptrdiff_t stride, bool transposed, int depth, int columns,
                  int width, float* out) {
  if (columns < width) std::fill_n(out, static_cast<std::ptrdiff_t>(depth) * width, 0.0F);
  if (transposed) {
    for (int j = 0; j < columns; ++j, from += stride) {
      float* to = out + j;
      for (int k = 0; k < depth; ++k, to += width) *to = from[k];
    }
    return;
  }
  for (int k = 0; k < depth; ++k, from += stride, out += width) std::copy_n(from, columns, out);
}

/// A part of the product: c's columns [column, column + columns), the chain's links [k, k + depth).
struct GemmPart {
  int column = 0, columns = 0, k = 0, depth = 0;
  bool continues = false;
  float factor = 1;
};

class Product {
 public:
  Product(Isa isa, const GemmSize& size, const MatrixView& a, const MatrixView& b, float* c,
          int c_stride)
      : kernel_(tile_kernel(isa)), size_(size), a_(a), b_(b), c_(c), c_stride_(c_stride) {}

  void run(float alpha, bool continues) {
    for (int j = 0; j < size_.n; j += kColumns) {
      for (int k = 0; k < size_.k; k += kDepth) {
        const int depth = std::min(kDepth, size_.k - k);
        const bool is_last = k + depth == size_.k;
        const GemmPart part{j,
                            std::min(kColumns, size_.n - j),
                            k,
                            depth,
                            continues || k > 0,
                            is_last ? alpha : 1.0F};
        pack_b(part);
        for (int i = 0; i < size_.m; i += rows_at_once())
          rows_of(part, i, std::min(rows_at_once(), size_.m - i));
      }
    }
  }

 private:
  /// Copying b costs as much as a few rows of c do, so for those it is read where it lies.
  bool reads_b_in_place() const { return !b_.transposed && size_.m <= 2 * kernel_.rows; }
  /// Whole tiles.
  int rows_at_once() const { return kRows - kRows % kernel_.rows; }

  void pack_b(const GemmPart& part) {
    for (int j = 0; j < part.columns; j += kernel_.columns) {
      const int columns = std::min(kernel_.columns, part.columns - j);
      if (columns == kernel_.columns && reads_b_in_place()) continue;
      pack_columns(at(b_, part.k, part.column + j), b_.stride, b_.transposed, part.depth, columns,
                   kernel_.columns, packed_b(part, j));
    }
  }
  float* packed_b(const GemmPart& part, int column) {
    return space_.b + static_cast<std::ptrdiff_t>(column) * part.depth;
  }

  void rows_of(const GemmPart& part, int row, int rows) {
    for (int i = 0; i < rows; i += kernel_.rows) {
      pack_rows(at(a_, row + i, part.k), a_.stride, a_.transposed, std::min(kernel_.rows, rows - i),
                part.depth, space_.a + static_cast<std::ptrdiff_t>(i) * part.depth);
    }
    for (int j = 0; j < part.columns; j += kernel_.columns) {
      Tile tile{.depth = part.depth,
                .b = packed_b(part, j),
                .b_stride = kernel_.columns,
                .c_stride = c_stride_,
                .columns = std::min(kernel_.columns, part.columns - j),
                .continues = part.continues,
                .factor = part.factor};
      if (tile.columns == kernel_.columns && reads_b_in_place()) {
        tile.b = at(b_, part.k, part.column + j);
        tile.b_stride = b_.stride;
      }
      for (int i = 0; i < rows; i += kernel_.rows) {
        tile.a = space_.a + static_cast<std::ptrdiff_t>(i) * part.depth;
        tile.c = c_ + static_cast<std::ptrdiff_t>(row + i) * c_stride_ + part.column + j;
        kernel_.run(std::min(kernel_.rows, rows - i), tile);
      }
    }
  }

  const TileKernel kernel_;
  const GemmSize size_;
  const MatrixView a_, b_;
  float* const c_;
  const int c_stride_;
  Workspace space_;  // not initialised: written before it is read
};

}  // namespace

void canonical_gemm(Isa isa, const GemmSize& size, float alpha, const MatrixView& a,
                    const MatrixView& b, float beta, float* c, int c_stride) {
  PIPEWRIGHT_ASSERT(beta == 0.0F || (beta == 1.0F && alpha == 1.0F),
                    "a canonical product either starts anew or goes on from what is there");
  PIPEWRIGHT_ASSERT(size.k > 0, "a product without a common dimension");
  Product(isa, size, a, b, c, c_stride).run(alpha, beta == 1.0F);
}

}  // namespace pipewright::exec::cpu
