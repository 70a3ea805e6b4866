// Sums of columns in two stages, for all numerics but the exact ones, whose sums are the CPU's
// chains (exec/devices/cuda/columns.hpp): first each column of each part of the rows, then the
// parts. With a thread a column a GPU would be mostly idle. Parts depend on the shape alone, and
// each sum is taken in a fixed order, so a run gives the same bits again. Plain data; elements may
// be done at any time, by any thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Enough threads for the whole of the largest GPU (132 SMs of 512, and more), and enough rows for
/// each to be worth it.
inline constexpr std::size_t kColumnThreads = std::size_t{1} << 17, kLeastRowsOfPart = 16;
/// Numbers of a kernel that adds up two columns at once.
static_assert(2 * 2 * kColumnThreads == PIPEWRIGHT_CUDA_COLUMN_WORDS);

/// 1: not worth dividing. Parts times width stay below twice kColumnThreads.
inline std::size_t parts_of_rows(std::size_t rows, std::size_t width) {
  const std::size_t wanted = (kColumnThreads + width - 1) / width;
  return std::clamp<std::size_t>(rows / kLeastRowsOfPart, 1, wanted);
}

/// Where the rows of a part begin.
PIPEWRIGHT_HOST_DEVICE inline std::size_t row_of_part(std::size_t part, std::size_t parts,
                                                      std::size_t rows) {
  return part * rows / parts;
}

/// partial[part][column].
template <class Term>
struct ColumnParts {
  std::size_t rows, width, parts;
  Term term;
  float* partial;
  std::size_t work() const { return rows * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t part = i / width, column = i % width;
    const std::size_t end = row_of_part(part + 1, parts, rows);
    float sum = 0.0F;
    for (std::size_t r = row_of_part(part, parts, rows); r < end; ++r)
      sum += term(r * width + column, r);
    partial[i] = sum;
  }
};

/// The same of the scale's gradient, and behind all of them those of the shift's.
template <class T>
struct LayerNormParts {
  std::size_t rows, width, parts;
  const T* x;
  const float *mean, *inverse_deviation;
  const T* dy;
  float* partial;
  std::size_t work() const { return rows * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t part = i / width, column = i % width;
    const std::size_t end = row_of_part(part + 1, parts, rows);
    float of_scale = 0.0F, of_shift = 0.0F;
    for (std::size_t r = row_of_part(part, parts, rows); r < end; ++r) {
      const std::size_t at = r * width + column;
      of_scale += dy[at] * ((x[at] - mean[r]) * inverse_deviation[r]);
      of_shift += dy[at];
    }
    partial[i] = of_scale;
    partial[parts * width + i] = of_shift;
  }
};

/// Column j of the first array, or j - width of the second one: its parts, in ascending order.
struct PartTotals {
  std::size_t width, parts;
  const float* partial;
  bool adds;
  float *first, *second;  // second may be null where there are `width` elements
  std::size_t work() const { return parts * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t j) const {
    const bool is_second = j >= width;
    const std::size_t column = is_second ? j - width : j;
    const float* from = partial + (is_second ? parts * width : 0) + column;
    float* const to = (is_second ? second : first) + column;
    float sum = adds ? *to : 0.0F;
    for (std::size_t part = 0; part < parts; ++part) sum += from[part * width];
    *to = sum;
  }
};

}  // namespace pipewright::exec::cuda
