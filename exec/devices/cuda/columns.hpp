// What a kernel does for one column, for the gradients of what all rows share: each column is one
// sum over the rows in ascending order, as in exec/devices/cpu/kernels/, whatever runs it. An
// embedding's gradient is of the same kind: the rows of one token in ascending order. Plain data;
// elements may be done at any time, by any thread. work() is of all elements: the numbers that they
// read, where these are more than there are elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/places.hpp"

namespace pipewright::exec::cuda {

/// What row r adds to the sum of the column in which element `at` lies.
template <class T>
struct BiasTerm {
  const T* dy;
  PIPEWRIGHT_HOST_DEVICE float operator()(std::size_t at, std::size_t) const { return dy[at]; }
};
template <class T>
struct RmsNormTerm {
  const T* x;
  const float* inverse_root;
  const T* dy;
  PIPEWRIGHT_HOST_DEVICE float operator()(std::size_t at, std::size_t r) const {
    return dy[at] * (x[at] * inverse_root[r]);
  }
};

template <class Term>
struct ColumnSums {
  std::size_t rows, width;
  Term term;
  bool adds;
  float* sums;
  std::size_t work() const { return rows * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t j) const {
    float sum = adds ? sums[j] : 0.0F;
    for (std::size_t r = 0; r < rows; ++r) sum += term(r * width + j, r);
    sums[j] = sum;
  }
};

template <class T>
struct LayerNormBackwardWeight {
  std::size_t rows, width;
  const T* x;
  const float *mean, *inverse_deviation;
  const T* dy;
  bool adds;
  float *dscale, *dshift;
  std::size_t work() const { return rows * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t j) const {
    float of_scale = adds ? dscale[j] : 0.0F, of_shift = adds ? dshift[j] : 0.0F;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t at = r * width + j;
      of_scale += dy[at] * ((x[at] - mean[r]) * inverse_deviation[r]);
      of_shift += dy[at];
    }
    dscale[j] = of_scale;
    dshift[j] = of_shift;
  }
};

/// Of row r: links[r], the next row with the same id, or -1; links[rows + r], whether it is the
/// first one.
struct EmbeddingLinks {
  std::size_t rows;
  const std::int32_t* ids;
  std::int32_t* links;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t r) const {
    const std::int32_t id = ids[r];
    std::size_t next = r + 1, before = 0;
    while (next < rows && ids[next] != id) ++next;
    while (ids[before] != id) ++before;
    links[r] = next < rows ? static_cast<std::int32_t>(next) : -1;
    links[rows + r] = before == r ? 1 : 0;
  }
};

/// Element (r, j) of dy: the first row of each token sums that token's column.
template <class T>
struct EmbeddingTokens {
  std::size_t rows, width;
  const std::int32_t *ids, *links;
  const T* dy;
  float* dtokens;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    if (links[rows + row] == 0) return;
    float* to = dtokens + static_cast<std::size_t>(ids[row]) * width + column;
    float sum = *to;
    for (std::int64_t r = static_cast<std::int64_t>(row); r >= 0; r = links[r])
      sum += dy[static_cast<std::size_t>(r) * width + column];
    *to = sum;
  }
};

/// Element (row of a sample, j): the samples in ascending order.
template <class T>
struct EmbeddingPositions {
  std::size_t rows, width;
  pipewright_cuda_places places;
  const T* dy;
  float* dpositions;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t of_sample = i / width, column = i % width;
    const auto sequence = static_cast<std::size_t>(places.sequence);
    float* const to = dpositions + place_of(places, of_sample) * width + column;
    float sum = *to;
    const std::size_t first = (of_sample + sequence - row_of_sample(places, 0)) % sequence;
    for (std::size_t r = first; r < rows; r += sequence) sum += dy[r * width + column];
    *to = sum;
  }
};

}  // namespace pipewright::exec::cuda
