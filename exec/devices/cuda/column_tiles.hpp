// Sums of columns in two stages, for all numerics but the exact ones, whose sums are the CPU's
// chains (exec/devices/cuda/columns.hpp): first each column of each part of the rows, then the
// parts. A block has a tile: 256 columns of a part, of which each thread reads packs of eight, and
// each warp every eighth row; at the end the warps' sums are added up in ascending order. Parts
// depend on the shape alone, so a run gives the same bits again. Plain data; blocks may be done at
// any time, the two phases of a block's threads one after the other.
#pragma once

#include <algorithm>
#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/row_packs.hpp"

namespace pipewright::exec::cuda {

inline constexpr int kTileWarps = 8, kTileLanes = 32, kTileThreads = kTileWarps * kTileLanes;
inline constexpr std::size_t kTileColumns = std::size_t{kTileLanes} * kRowPack;

/// Enough threads for the whole of the largest GPU (132 SMs of 512, and more), and enough rows for
/// each to be worth it.
inline constexpr std::size_t kColumnThreads = std::size_t{1} << 17, kLeastRowsOfPart = 32;
/// Numbers of two sums of each column: parts times width stay below twice kColumnThreads.
static_assert(2 * 2 * kColumnThreads == PIPEWRIGHT_CUDA_COLUMN_WORDS);
static_assert(kTileThreads == kTileColumns, "in the second phase a thread has a column");

inline std::size_t column_tiles_of(std::size_t width) {
  return (width + kTileColumns - 1) / kTileColumns;
}

/// 1: not worth dividing.
inline std::size_t parts_of_rows(std::size_t rows, std::size_t width) {
  const std::size_t tiles = column_tiles_of(width) * kTileThreads;
  return std::clamp<std::size_t>(rows / kLeastRowsOfPart, 1, (kColumnThreads + tiles - 1) / tiles);
}

/// Where the rows of a part begin.
PIPEWRIGHT_HOST_DEVICE inline std::size_t row_of_part(std::size_t part, std::size_t parts,
                                                      std::size_t rows) {
  return part * rows / parts;
}

template <class Term>
struct ColumnTiles {
  static constexpr int kSums = Term::kSums;
  /// What the threads of a block share.
  struct Shared {
    float of[kTileWarps][kSums][kRowPack][kTileLanes];
  };

  std::size_t rows, width, parts;
  Term term;
  bool in_packs;     // rows consist of packs
  bool adds;         // to what is there, where there is one part
  float* to[kSums];  // [parts][width]

  std::size_t work() const { return rows * width; }

  /// Every eighth row of the part, of the columns of one pack.
  PIPEWRIGHT_HOST_DEVICE void add(std::size_t tile, std::size_t part, int thread,
                                  Shared& shared) const {
    const int warp = thread / kTileLanes, lane = thread % kTileLanes;
    const std::size_t column = tile * kTileColumns + static_cast<std::size_t>(lane) * kRowPack;
    const std::size_t end = row_of_part(part + 1, parts, rows);
    const std::size_t first = row_of_part(part, parts, rows) + static_cast<std::size_t>(warp);
    float sums[kRowPack][kSums] = {};
    if (in_packs && column < width) {
      // Reads of several rows are under way at once.
#if defined(__CUDA_ARCH__)
#pragma unroll 4
#endif
      for (std::size_t row = first; row < end; row += kTileWarps)
        term.pack(row * width + column, row, sums);
    } else {
      for (std::size_t row = first; row < end; row += kTileWarps) {
        for (std::size_t k = 0; k < kRowPack && column + k < width; ++k)
          term(row * width + column + k, row, sums[k]);
      }
    }
    for (int s = 0; s < kSums; ++s) {
      for (int k = 0; k < kRowPack; ++k) shared.of[warp][s][k][lane] = sums[k][s];
    }
  }

  /// Column `thread` of the tile, behind all threads' add().
  PIPEWRIGHT_HOST_DEVICE void total(std::size_t tile, std::size_t part, int thread,
                                    const Shared& shared) const {
    const std::size_t column = tile * kTileColumns + static_cast<std::size_t>(thread);
    if (column >= width) return;
    for (int s = 0; s < kSums; ++s) {
      float* const sum_of = to[s] + part * width + column;
      float sum = adds ? *sum_of : 0.0F;
      for (int warp = 0; warp < kTileWarps; ++warp)
        sum += shared.of[warp][s][thread % kRowPack][thread / kRowPack];
      *sum_of = sum;
    }
  }
};

}  // namespace pipewright::exec::cuda
