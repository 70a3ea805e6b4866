// What a kernel does for one row, for the kernels that sum over rows. Sixteen lanes share a row:
// lane l has the elements l, l + 16, l + 32, … and the lanes' parts are combined in halves, which
// is the order of exec/devices/cpu/kernels/reduce.hpp; on a GPU the lanes are half a warp. Each
// operation is that of exec/layers/ops.hpp, step for step in the order of
// exec/devices/cpu/kernels/.
//
// `Lanes` is whoever runs the row: reduce(n, start, combine, term, a, b, …) and sum(n, term, a, b,
// …) give all lanes the same number, of term(a[j], b[j], …) for all elements, and reduce_places(n,
// start, combine, term) of term(j); map(n, f, to, a, b, …) sets to[j] = f(a[j], b[j], …), and `to`
// may be one of the arrays; each_place(n, f) calls f(j); first(f) calls f in lane 0; sync() lets
// what the lanes have read or written be seen by one another; hold(n, a) says that a row is read
// more than once, and gives what stands for it from then on: the array itself, or what the lanes
// have of it in registers (exec/devices/cuda/held_rows.hpp). T is float or Bfloat16; all of it is
// computed in float.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cuda/held_rows.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

inline constexpr int kLanes = 16;
/// Outside of exact numerics, where a row is long and there are few of them: the threads of a
/// block, whose parts are combined in halves within each warp of kWarp, then the warps' in halves.
inline constexpr int kWideLanes = 256, kWarp = 32;

struct Plus {
  PIPEWRIGHT_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  PIPEWRIGHT_HOST_DEVICE float operator()(float a, float b) const { return a < b ? b : a; }
};

struct SoftmaxSums {
  float maximum, sum;
};

/// p[n] = softmax(x[n]); p may be x. Each e^x is computed twice, which takes less than writing it
/// once more, and nothing is rounded in between where T is narrow.
template <class T, class Lanes>
PIPEWRIGHT_HOST_DEVICE inline SoftmaxSums softmax(const Lanes& lanes, int n, const T* x, T* p) {
  SoftmaxSums sums{};
  const float start = x[0];
  sums.maximum = lanes.reduce(n, start, Larger{}, Same{}, x);
  const float most = sums.maximum;
  const auto power = [most](float at) { return cpu::exp_in_range(cpu::clamp_exponent(at - most)); };
  sums.sum = lanes.sum(n, power, x);
  const float inverse = 1.0F / sums.sum;
  lanes.map(
      n, [=](float at) { return power(at) * inverse; }, p, x);
  return sums;
}

template <class T>
struct LayerNormForward {
  int width;
  const T *x, *scale, *shift;
  T* y;
  float *mean, *inverse_deviation;
  float epsilon;

  bool can_be_held() const { return begin_packs(x, scale, shift, y); }
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const auto in = lanes.hold(width, x + row * static_cast<std::size_t>(width));
    T* out = y + row * static_cast<std::size_t>(width);
    const float average = lanes.sum(width, Same{}, in) / static_cast<float>(width);
    const auto square = [average](float at) {
      const float centred = at - average;
      return centred * centred;
    };
    const float variance = lanes.sum(width, square, in) / static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(variance + epsilon);
    const auto normed = [=](float at, float by, float plus) {
      return (at - average) * inverse * by + plus;
    };
    lanes.map(width, normed, out, in, scale, shift);
    float *const of_mean = mean + row, *const of_inverse = inverse_deviation + row;
    lanes.first([=] {
      *of_mean = average;
      *of_inverse = inverse;
    });
  }
};

template <class T>
struct LayerNormBackwardInput {
  int width;
  const T* x;
  const float *mean, *inverse_deviation;
  const T *scale, *dy;
  T* dx;

  bool can_be_held() const { return begin_packs(x, scale, dy, dx); }
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const auto in = lanes.hold(width, x + at);
    const auto dout = lanes.hold(width, dy + at);
    const float average = mean[row], inverse = inverse_deviation[row];
    const float per_width = 1.0F / static_cast<float>(width);
    const auto scaled = [](float d, float by) { return d * by; };
    const float g_mean = lanes.sum(width, scaled, dout, scale) * per_width;
    const auto along = [=](float d, float by, float from) {
      const float z = (from - average) * inverse;
      return d * by * z;
    };
    const float gz_mean = lanes.sum(width, along, dout, scale, in) * per_width;
    const auto gradient = [=](float d, float by, float from) {
      const float z = (from - average) * inverse;
      return inverse * (d * by - g_mean - z * gz_mean);
    };
    lanes.map(width, gradient, dx + at, dout, scale, in);
  }
};

template <class T>
struct RmsNormForward {
  int width;
  const T *x, *scale;
  T* y;
  float* inverse_root;
  float epsilon;

  bool can_be_held() const { return begin_packs(x, scale, y); }
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const auto square = [](float from) { return from * from; };
    const auto in = lanes.hold(width, x + at);
    const float mean = lanes.sum(width, square, in) / static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(mean + epsilon);
    const auto normed = [inverse](float from, float by) { return from * inverse * by; };
    lanes.map(width, normed, y + at, in, scale);
    float* const of_inverse = inverse_root + row;
    lanes.first([=] { *of_inverse = inverse; });
  }
};

template <class T>
struct RmsNormBackwardInput {
  int width;
  const T* x;
  const float* inverse_root;
  const T *scale, *dy;
  T* dx;

  bool can_be_held() const { return begin_packs(x, scale, dy, dx); }
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const float inverse = inverse_root[row];
    const float per_width = 1.0F / static_cast<float>(width);
    const auto along = [inverse](float d, float by, float from) {
      return d * by * (from * inverse);
    };
    const auto in = lanes.hold(width, x + at);
    const auto dout = lanes.hold(width, dy + at);
    const float gz_mean = lanes.sum(width, along, dout, scale, in) * per_width;
    const auto gradient = [=](float d, float by, float from) {
      return inverse * (d * by - from * inverse * gz_mean);
    };
    lanes.map(width, gradient, dx + at, dout, scale, in);
  }
};

/// Where the scores of a query begin, and those of their gradients, and how many keys it sees.
struct CausalRow {
  std::size_t at, gradient;
  int seen;
};
PIPEWRIGHT_HOST_DEVICE inline CausalRow causal_row(const pipewright_cuda_causal& of,
                                                   std::size_t row) {
  const auto rows = static_cast<std::size_t>(of.rows);
  const std::size_t matrix = row / rows, i = row % rows;
  const std::size_t in_matrix = i * static_cast<std::size_t>(of.columns);
  return {matrix * static_cast<std::size_t>(of.step) + in_matrix,
          matrix * static_cast<std::size_t>(of.gradient_step) + in_matrix,
          of.first + static_cast<int>(i) + 1};
}

template <class T>
struct CausalSoftmaxForward {
  int width;  // columns
  pipewright_cuda_causal of;
  T* scores;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const CausalRow place = causal_row(of, row);
    T* p = scores + place.at;
    softmax(lanes, place.seen, p, p);
    lanes.map(
        width - place.seen, [] { return 0.0F; }, p + place.seen);
  }
};

template <class T>
struct CausalSoftmaxBackwardInput {
  int width;
  pipewright_cuda_causal of;
  float factor;
  const T* probabilities;
  T* d;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const CausalRow place = causal_row(of, row);
    const T* p = probabilities + place.at;
    T* out = d + place.gradient;
    const float dot = lanes.sum(
        place.seen, [](float a, float b) { return a * b; }, p, out);
    const auto gradient = [dot, by = factor](float of_p, float from) {
      return by * (of_p * (from - dot));
    };
    lanes.map(place.seen, gradient, out, p, out);
    lanes.map(
        width - place.seen, [] { return 0.0F; }, out + place.seen);
  }
};

template <class T>
struct CrossEntropyForward {
  int width;
  const T* logits;
  const std::int32_t* labels;
  T* probabilities;
  float* row_facts;

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

/// What evaluations want to know of a row of outputs, or of its columns from the `first` on.
template <class T>
struct JudgeRow {
  int width, first;
  const T* outputs;
  const std::int32_t* labels;  // may be null
  float* row_facts;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const T* in = outputs + row * static_cast<std::size_t>(width);
    const float start = in[0];
    const float largest = lanes.reduce(width, start, Larger{}, Same{}, in);
    const auto is_odd = [](float x) { return x - x == 0.0F ? 0.0F : 1.0F; };
    const float odd = lanes.sum(width, is_odd, in);
    const auto is_largest = [largest](float x) { return x >= largest ? 1.0F : 0.0F; };
    const int label = labels == nullptr ? -1 : labels[row] - first;
    const bool has_label = label >= 0 && label < width;
    const float before = lanes.sum(has_label ? label : 0, is_largest, in);
    const bool is_label = has_label && before == 0.0F && in[label] >= largest;
    float* facts = row_facts + 3 * row;
    lanes.first([=] {
      facts[0] = largest;
      facts[1] = is_label ? 1.0F : 0.0F;
      facts[2] = odd == 0.0F ? 1.0F : 0.0F;
    });
  }
};

template <class T>
struct MseForward {
  int width;
  const T* y;
  const float* target;
  float* row_sums;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const std::size_t at = row * static_cast<std::size_t>(width);
    const auto square = [](float out, float wanted) {
      const float difference = out - wanted;
      return difference * difference;
    };
    const float sum = lanes.sum(width, square, y + at, target + at);
    float* to = row_sums + row;
    lanes.first([=] { *to = sum; });
  }
};

}  // namespace pipewright::exec::cuda
