// What a kernel does for one row, for the kernels that sum over rows. Sixteen lanes share a row:
// lane l has the elements l, l + 16, l + 32, … and the lanes' parts are combined in halves, which
// is the order of exec/devices/cpu/kernels/reduce.hpp; on a GPU the lanes are half a warp. Each
// operation is that of exec/layers/ops.hpp, step for step in the order of
// exec/devices/cpu/kernels/.
//
// `Lanes` is whoever runs the row: each(n, f) calls f(j) for all elements, each in its own lane;
// reduce(n, start, combine, term) and sum(n, term) give all lanes the same number; first(f) calls f
// in lane 0; sync() lets what the lanes have read or written be seen by one another.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"

namespace pipewright::exec::cuda {

inline constexpr int kLanes = 16;
/// Outside of exact numerics, where a row is long and there are few of them: the threads of a
/// block, whose parts are combined in halves within each warp of kWarp, then the warps' in halves.
inline constexpr int kWideLanes = 256, kWarp = 32;

/// What one lane brings to a reduction of n elements.
template <int lanes, class Combine, class Term>
PIPEWRIGHT_HOST_DEVICE inline float lane_part(int lane, int n, float start, Combine combine,
                                              Term term) {
  float part = start;
  for (int j = lane; j < n; j += lanes) part = combine(part, term(j));
  return part;
}

struct Plus {
  PIPEWRIGHT_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  PIPEWRIGHT_HOST_DEVICE float operator()(float a, float b) const { return a < b ? b : a; }
};

struct SoftmaxSums {
  float maximum, sum;
};

/// p[n] = softmax(x[n]); p may be x.
template <class Lanes>
PIPEWRIGHT_HOST_DEVICE inline SoftmaxSums softmax(const Lanes& lanes, int n, const float* x,
                                                  float* p) {
  SoftmaxSums sums{};
  const float start = x[0];
  sums.maximum = lanes.reduce(n, start, Larger{}, [x](int j) { return x[j]; });
  lanes.sync();  // x[0] has been read by all
  const float most = sums.maximum;
  lanes.each(n, [=](int j) { p[j] = cpu::exp_in_range(cpu::clamp_exponent(x[j] - most)); });
  sums.sum = lanes.sum(n, [p](int j) { return p[j]; });
  const float inverse = 1.0F / sums.sum;
  lanes.each(n, [=](int j) { p[j] *= inverse; });
  return sums;
}

struct LayerNormForward {
  int width;
  const float *x, *scale, *shift;
  float *y, *mean, *inverse_deviation;
  float epsilon;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const float* in = x + row * static_cast<std::size_t>(width);
    float* out = y + row * static_cast<std::size_t>(width);
    const float *by = scale, *plus = shift;
    const float average =
        lanes.sum(width, [in](int j) { return in[j]; }) / static_cast<float>(width);
    const float variance = lanes.sum(width, [in, average](int j) {
      const float centred = in[j] - average;
      return centred * centred;
    }) / static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(variance + epsilon);
    lanes.each(width, [=](int j) { out[j] = (in[j] - average) * inverse * by[j] + plus[j]; });
    float *const of_mean = mean + row, *const of_inverse = inverse_deviation + row;
    lanes.first([=] {
      *of_mean = average;
      *of_inverse = inverse;
    });
  }
};

struct LayerNormBackwardInput {
  int width;
  const float *x, *mean, *inverse_deviation, *scale, *dy;
  float* dx;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float *in = x + at, *dout = dy + at, *by = scale;
    float* din = dx + at;
    const float average = mean[row], inverse = inverse_deviation[row];
    const float per_width = 1.0F / static_cast<float>(width);
    const float g_mean = lanes.sum(width, [=](int j) { return dout[j] * by[j]; }) * per_width;
    const float gz_mean = lanes.sum(width, [=](int j) {
      const float z = (in[j] - average) * inverse;
      return dout[j] * by[j] * z;
    }) * per_width;
    lanes.each(width, [=](int j) {
      const float z = (in[j] - average) * inverse;
      din[j] = inverse * (dout[j] * by[j] - g_mean - z * gz_mean);
    });
  }
};

/// Row i of a square of scores sees the keys 0 … i.
struct CausalSoftmaxForward {
  int sequence;
  float* scores;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    float* p = scores + row * static_cast<std::size_t>(sequence);
    const int seen = static_cast<int>(row % static_cast<std::size_t>(sequence)) + 1;
    softmax(lanes, seen, p, p);
    lanes.each(sequence, [=](int j) {
      if (j >= seen) p[j] = 0.0F;
    });
  }
};

struct CausalSoftmaxBackwardInput {
  int sequence;
  const float* probabilities;
  float* d;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(sequence);
    const float* p = probabilities + at;
    float* out = d + at;
    const int seen = static_cast<int>(row % static_cast<std::size_t>(sequence)) + 1;
    const float dot = lanes.sum(seen, [=](int j) { return p[j] * out[j]; });
    lanes.each(sequence, [=](int j) { out[j] = j < seen ? p[j] * (out[j] - dot) : 0.0F; });
  }
};

struct CrossEntropyForward {
  int width;
  const float* logits;
  const std::int32_t* labels;
  float *probabilities, *row_facts;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float of_label = logits[at + static_cast<std::size_t>(labels[row])];
    lanes.sync();  // probabilities may be the logits
    const SoftmaxSums sums = softmax(lanes, width, logits + at, probabilities + at);
    float* facts = row_facts + 3 * row;
    lanes.first([=] {
      facts[0] = sums.maximum;
      facts[1] = sums.sum;
      facts[2] = of_label;
    });
  }
};

struct MseForward {
  int width;
  const float *y, *target;
  float* row_sums;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float *out = y + at, *wanted = target + at;
    const float sum = lanes.sum(width, [=](int j) {
      const float difference = out[j] - wanted[j];
      return difference * difference;
    });
    float* to = row_sums + row;
    lanes.first([=] { *to = sum; });
  }
};

}  // namespace pipewright::exec::cuda
