// What a kernel does for one column, for the gradients of what all rows share: each column is one
// sum over the rows in ascending order, as in exec/devices/cpu/kernels/, whatever runs it. An
// embedding's gradient is of the same kind: the rows of one token in ascending order. Plain data;
// elements may be done at any time, by any thread. work() is of all elements: the numbers that they
// read, where these are more than there are elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/places.hpp"
#include "exec/devices/cuda/row_packs.hpp"

namespace pipewright::exec::cuda {

// What row r adds to the kSums sums of the column in which element `at` lies; pack(): of a pack of
// columns, whose arrays begin one there.

/// Of arrays as they are: of a bias's gradient, and of sums of parts.
template <class T, int n>
struct ArrayTerm {
  static constexpr int kSums = n;
  const T* from[n];

  bool can_be_packs() const { return std::all_of(from, from + n, begins_a_pack); }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t at, std::size_t, float (&sums)[n]) const {
    for (int s = 0; s < n; ++s) sums[s] += from[s][at];
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t at, std::size_t, float (&sums)[kRowPack][n]) const {
    for (int s = 0; s < n; ++s) {
      const Loaded<T, kRowPack> all(from[s] + at);
      for (int k = 0; k < kRowPack; ++k) sums[k][s] += all[k];
    }
  }
};

template <class T>
struct RmsNormTerm {
  static constexpr int kSums = 1;
  const T* x;
  const float* inverse_root;
  const T* dy;

  bool can_be_packs() const { return begin_packs(x, dy); }
  PIPEWRIGHT_HOST_DEVICE static void add(float d, float from, float inverse, float (&sums)[1]) {
    sums[0] += d * (from * inverse);
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t at, std::size_t r, float (&sums)[1]) const {
    add(dy[at], x[at], inverse_root[r], sums);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t at, std::size_t r,
                                   float (&sums)[kRowPack][1]) const {
    const Loaded<T, kRowPack> from(x + at), d(dy + at);
    for (int k = 0; k < kRowPack; ++k) add(d[k], from[k], inverse_root[r], sums[k]);
  }
};

/// The scale's gradient, and the shift's.
template <class T>
struct LayerNormTerm {
  static constexpr int kSums = 2;
  const T* x;
  const float *mean, *inverse_deviation;
  const T* dy;

  bool can_be_packs() const { return begin_packs(x, dy); }
  PIPEWRIGHT_HOST_DEVICE void add(float d, float from, std::size_t r, float (&sums)[2]) const {
    sums[0] += d * ((from - mean[r]) * inverse_deviation[r]);
    sums[1] += d;
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t at, std::size_t r, float (&sums)[2]) const {
    add(dy[at], x[at], r, sums);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t at, std::size_t r,
                                   float (&sums)[kRowPack][2]) const {
    const Loaded<T, kRowPack> from(x + at), d(dy + at);
    for (int k = 0; k < kRowPack; ++k) add(d[k], from[k], r, sums[k]);
  }
};

/// A thread a column.
template <class Term>
struct ColumnSums {
  std::size_t rows, width;
  Term term;
  bool adds;
  float* to[Term::kSums];
  std::size_t work() const { return rows * width; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t j) const {
    float sums[Term::kSums];
    for (int s = 0; s < Term::kSums; ++s) sums[s] = adds ? to[s][j] : 0.0F;
    for (std::size_t r = 0; r < rows; ++r) term(r * width + j, r, sums);
    for (int s = 0; s < Term::kSums; ++s) to[s][j] = sums[s];
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
