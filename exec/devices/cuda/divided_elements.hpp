// What a kernel does for one element, or one row, where ranks divide a token table by its rows or
// logits by their columns: as exec/devices/cuda/elements.hpp and rows.hpp have it, step for step in
// the order of exec/devices/cpu/kernels/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/base/random.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/places.hpp"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

/// Weights of which a rank has a part: numbers are those of their places in the whole.
struct StartPart {
  std::uint64_t key;
  float bound, value;
  pipewright_cuda_slice slice;
  float* y;

  PIPEWRIGHT_HOST_DEVICE std::size_t place_of(std::size_t i) const {
    const auto width = static_cast<std::size_t>(slice.width);
    const std::size_t row = i / width;
    std::int64_t column = static_cast<std::int64_t>(i % width);
    int range = 0;
    while (column >= slice.ranges[range].count) column -= slice.ranges[range++].count;
    return (static_cast<std::size_t>(slice.first_row) + row) *
               static_cast<std::size_t>(slice.columns) +
           static_cast<std::size_t>(slice.ranges[range].begin + column);
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    y[i] = bound == 0.0F ? value : bound * symmetric_uniform(key, place_of(i));
  }
};

/// Of a table that holds the tokens [first, first + count) alone.
template <class T>
struct LookUp {
  std::size_t width;
  std::int32_t first, count;
  bool alone;
  const std::int32_t* ids;
  const T* tokens;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::int32_t id = ids[i / width] - first;
    if (0 <= id && id < count)
      y[i] = tokens[static_cast<std::size_t>(id) * width + i % width];
    else if (alone)
      y[i] = 0.0F;
  }
};

template <class T>
struct AddPositions {
  std::size_t width;
  pipewright_cuda_places places;
  const T* positions;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t place = place_of(places, row_of_sample(places, i / width));
    y[i] = y[i] + positions[place * width + i % width];
  }
};

/// As EmbeddingTokens, of that table.
template <class T>
struct LookedUpTokens {
  std::size_t rows, width;
  std::int32_t first, count;
  const std::int32_t *ids, *links;
  const T* dy;
  float* dtokens;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    const std::int32_t id = ids[row] - first;
    if (links[rows + row] == 0 || id < 0 || id >= count) return;
    float* to = dtokens + static_cast<std::size_t>(id) * width + column;
    float sum = *to;
    for (std::int64_t r = static_cast<std::int64_t>(row); r >= 0; r = links[r])
      sum += dy[static_cast<std::size_t>(r) * width + column];
    *to = sum;
  }
};

// --- Logits whose columns [first, first + width) a rank has ---

/// What all ranks know of a row: the largest logit of each of them, then the label's.
PIPEWRIGHT_HOST_DEVICE inline float largest_of(const float* facts, int members) {
  float largest = facts[0];
  for (int m = 1; m < members; ++m) largest = Larger{}(largest, facts[m]);
  return largest;
}

template <class T>
struct TellLogits {
  int width, first, member, members;
  const T* logits;
  const std::int32_t* labels;
  float* facts;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const T* in = logits + row * static_cast<std::size_t>(width);
    const float start = in[0];
    const float largest = lanes.reduce(width, start, Larger{}, Same{}, in);
    const int label = labels[row] - first;
    const bool is_own = 0 <= label && label < width;
    const float of_label = is_own ? static_cast<float>(in[label]) : 0.0F;
    float* const to = facts + row * static_cast<std::size_t>(members + 1);
    const int own = member, last = members;
    lanes.first([=] {
      to[own] = largest;
      if (is_own) to[last] = of_label;
    });
  }
};

/// Element (row, part): one of the sixteen parts of a row's sum goes on over its own columns, as
/// they follow one another on all ranks. In exact numerics.
struct AddExponentialsInParts {
  std::size_t width, first;
  int members;
  const float *logits, *facts;
  float *exponentials, *sums;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    constexpr std::size_t kParts = kLanes;
    const std::size_t row = i / kParts, part = i % kParts;
    const float most = largest_of(facts + row * static_cast<std::size_t>(members + 1), members);
    float sum = sums[i];
    for (std::size_t j = (part + kParts - first % kParts) % kParts; j < width; j += kParts) {
      const std::size_t at = row * width + j;
      exponentials[at] = cpu::exp_in_range(cpu::clamp_exponent(logits[at] - most));
      sum += exponentials[at];
    }
    sums[i] = sum;
  }
};

/// The same where the order does not matter: all goes to the first part.
template <class T>
struct AddExponentials {
  int width, members;
  const T* logits;
  const float* facts;
  T* exponentials;
  float* sums;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float most = largest_of(facts + row * static_cast<std::size_t>(members + 1), members);
    const auto power = [most](float of) {
      return cpu::exp_in_range(cpu::clamp_exponent(of - most));
    };
    const float sum = lanes.sum(width, power, logits + at);
    lanes.map(width, power, exponentials + at, logits + at);
    float* const to = sums + row * kLanes;
    lanes.first([=] { *to += sum; });
  }
};

/// Exponentials to probabilities; row_facts as CrossEntropyForward leaves them.
template <class T>
struct FinishCrossEntropy {
  int width, members;
  const float *facts, *sums;
  T* probabilities;
  float* row_facts;

  /// In halves, as sixteen lanes add up.
  PIPEWRIGHT_HOST_DEVICE static float sum_of(const float* parts) {
    float sums[kLanes];
    for (int i = 0; i < kLanes; ++i) sums[i] = parts[i];
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    return sums[0];
  }
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    T* const p = probabilities + row * static_cast<std::size_t>(width);
    const float* const known = facts + row * static_cast<std::size_t>(members + 1);
    const float sum = sum_of(sums + row * kLanes), most = largest_of(known, members);
    const float inverse = 1.0F / sum, of_label = known[members];
    lanes.map(
        width, [inverse](float exponential) { return exponential * inverse; }, p, p);
    float* const to = row_facts + 3 * row;
    lanes.first([=] {
      to[0] = most;
      to[1] = sum;
      to[2] = of_label;
    });
  }
};

}  // namespace pipewright::exec::cuda
