// What a kernel does for one row of scores where keys and values go round the ranks that divide
// sequences: as exec/devices/cuda/rows.hpp has it.
#pragma once

#include <cmath>
#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

/// e^(score - shift).
struct ShiftedPower {
  float shift;
  PIPEWRIGHT_HOST_DEVICE float operator()(float score) const {
    return cpu::exp_in_range(cpu::clamp_exponent(score - shift));
  }
};

/// A query's row of scores: where its numbers lie by own row and head, and how many keys it sees.
struct RingRow {
  std::size_t number;
  int seen;
};
PIPEWRIGHT_HOST_DEVICE inline RingRow ring_row(const pipewright_cuda_ring& of, std::size_t row) {
  const auto chunk = static_cast<std::size_t>(of.chunk), heads = static_cast<std::size_t>(of.heads);
  const std::size_t i = row % chunk, head = row / chunk % heads, sample = row / chunk / heads;
  const std::size_t own = sample * static_cast<std::size_t>(of.sequence) +
                          static_cast<std::size_t>(of.which) * chunk + i;
  return {own * heads + head, of.is_causal != 0 ? static_cast<int>(i) + 1 : of.chunk};
}

template <class T>
struct RingRowsForward {
  int width;  // of.chunk
  pipewright_cuda_ring of;
  T *scores, *context;
  float *largest, *sum;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const RingRow place = ring_row(of, row);
    T* s = scores + row * static_cast<std::size_t>(width);
    float *const to_largest = largest + place.number, *const to_sum = sum + place.number;
    const bool is_first = of.is_causal != 0;
    const float start = s[0];
    const float before = is_first ? start : *to_largest, met = is_first ? 0.0F : *to_sum;
    const float here = lanes.reduce(place.seen, start, Larger{}, Same{}, s);
    const float now = is_first ? here : Larger{}(here, before);
    const float added = lanes.sum(place.seen, ShiftedPower{now}, s);
    lanes.map(place.seen, ShiftedPower{now}, s, s);
    lanes.map(
        width - place.seen, [] { return 0.0F; }, s + place.seen);
    const float shrunk = is_first ? 0.0F : ShiftedPower{now}(before);
    if (!is_first) {
      T* const c = context + place.number * static_cast<std::size_t>(of.head_width);
      lanes.map(
          of.head_width, [shrunk](float x) { return x * shrunk; }, c, c);
    }
    lanes.first([=] {
      *to_largest = now;
      *to_sum = met * shrunk + added;
    });
  }
};

template <class T>
struct FinishRing {
  int width;  // of a head
  T* context;
  float* largest;
  const float* sum;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const float whole = sum[row], inverse = 1.0F / whole;
    T* const c = context + row * static_cast<std::size_t>(width);
    lanes.map(
        width, [inverse](float x) { return x * inverse; }, c, c);
    float* const to = largest + row;
    lanes.first([=] { *to += std::log(whole); });
  }
};

template <class T>
struct ProductsOfRows {
  int width;
  const T *a, *b;
  float* products;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float product = lanes.sum(
        width, [](float x, float y) { return x * y; }, a + at, b + at);
    float* const to = products + row;
    lanes.first([=] { *to = product; });
  }
};

template <class T>
struct RingRowsBackward {
  int width;  // of.chunk
  pipewright_cuda_ring of;
  float factor;
  const float *log_sums, *products;
  T *scores, *d;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const RingRow place = ring_row(of, row);
    const std::size_t at = row * static_cast<std::size_t>(width);
    T *s = scores + at, *out = d + at;
    const ShiftedPower power{log_sums[place.number]};
    const float product = products[place.number];
    const auto gradient = [power, product, by = factor](float score, float from) {
      return by * (power(score) * (from - product));
    };
    lanes.map(place.seen, gradient, out, s, out);
    lanes.sync();  // a lane may have other numbers of one array than of two
    lanes.map(place.seen, power, s, s);
    lanes.map(
        width - place.seen, [] { return 0.0F; }, s + place.seen);
    lanes.map(
        width - place.seen, [] { return 0.0F; }, out + place.seen);
  }
};

}  // namespace pipewright::exec::cuda
