// What a kernel does for the operators that see a channel of many images as one: batch norm, the
// bias of convolutions, and means of whole planes. A channel's sum is taken in two stages, as
// exec/devices/cpu/kernels/batch_norm.cpp does: each plane's (a channel of an image) by lanes in
// float (exec/devices/cuda/rows.hpp), and these of all images one after another in double. Plain
// data; elements and rows may be done at any time, by any thread. T is float or Bfloat16; all of it
// is computed in float, or double.
#pragma once

#include <cmath>
#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/image_api.h"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

inline constexpr float kBatchNormEpsilon = 1e-5F;  // of the same name in exec/layers/image_ops.hpp

PIPEWRIGHT_HOST_DEVICE inline float inverse_deviation(float variance) {
  return 1.0F / std::sqrt(variance + kBatchNormEpsilon);
}

/// Element i of images of channels.
struct OfChannels {
  std::size_t channels, pixels;
  PIPEWRIGHT_HOST_DEVICE std::size_t channel(std::size_t i) const { return i / pixels % channels; }
};

// --- Sums ---

/// Of each plane the sum of its numbers.
template <class T>
struct PlaneSums {
  int width;  // numbers of a plane
  const T* x;
  float* sums;
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t plane) const {
    const float sum = lanes.sum(width, Same{}, x + plane * static_cast<std::size_t>(width));
    float* const to = sums + plane;
    lanes.first([=] { *to = sum; });
  }
};

/// Of its numbers' squares, each less the channel's mean.
template <class T>
struct PlaneSquares {
  int width;
  std::size_t channels;
  const T* x;
  const float* mean;
  float* sums;
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t plane) const {
    const float middle = mean[plane % channels];
    const auto square = [middle](float at) {
      const float centred = at - middle;
      return centred * centred;
    };
    const float sum = lanes.sum(width, square, x + plane * static_cast<std::size_t>(width));
    float* const to = sums + plane;
    lanes.first([=] { *to = sum; });
  }
};

/// Of the gradients, and of their products with the normed numbers.
template <class T>
struct PlaneGradients {
  int width;
  std::size_t channels, planes;
  const T *x, *dy;
  const float *mean, *variance;
  float* sums;  // [2][planes]
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t plane) const {
    const std::size_t at = plane * static_cast<std::size_t>(width), channel = plane % channels;
    const float middle = mean[channel], inverse = inverse_deviation(variance[channel]);
    const auto along = [=](float d, float from) { return d * ((from - middle) * inverse); };
    const float sum = lanes.sum(width, Same{}, dy + at);
    const float product = lanes.sum(width, along, dy + at, x + at);
    float *const to = sums + plane, *const behind = sums + planes + plane;
    lanes.first([=] {
      *to = sum;
      *behind = product;
    });
  }
};

PIPEWRIGHT_HOST_DEVICE inline double total_of(const float* sums, std::size_t images,
                                              std::size_t channels, std::size_t channel) {
  double total = 0;
  for (std::size_t image = 0; image < images; ++image)
    total += static_cast<double>(sums[image * channels + channel]);
  return total;
}

/// A channel's sum, or that divided by `count`.
struct ChannelTotals {
  std::size_t images, channels;
  const float* sums;
  double count;
  bool adds;
  float* to;
  std::size_t work() const { return images * channels; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t c) const {
    const auto total = static_cast<float>(total_of(sums, images, channels, c) / count);
    to[c] = adds ? to[c] + total : total;
  }
};

/// A channel's gradients of scale and shift, and what I needs of the two sums.
struct BatchNormTotals {
  std::size_t images, channels;
  const float *sums, *variance;
  double count;
  float *dscale, *dshift, *mean_dy, *slope;
  std::size_t work() const { return 2 * images * channels; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t c) const {
    const double sum = total_of(sums, images, channels, c);
    const double product = total_of(sums + images * channels, images, channels, c);
    dshift[c] = static_cast<float>(sum);
    dscale[c] = static_cast<float>(product);
    mean_dy[c] = static_cast<float>(sum / count);
    slope[c] = static_cast<float>(product / count) * inverse_deviation(variance[c]);
  }
};

// --- Element by element ---

/// y[channel][image][pixel] of x[image][channel][pixel].
template <class T>
struct GatherChannels {
  std::size_t images, channels, pixels;
  const T* x;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t image = i / pixels % images, channel = i / pixels / images;
    y[i] = x[(image * channels + channel) * pixels + i % pixels];
  }
};

struct AddScaled {
  float factor;
  const float* x;
  bool adds;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    y[i] = adds ? y[i] + x[i] * factor : x[i] * factor;
  }
};

struct AddOne {
  bool adds;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = adds ? y[i] + 1.0F : 1.0F; }
};

template <class T>
struct ChannelBiasForward {
  OfChannels of;
  const T* bias;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    y[i] = static_cast<float>(y[i]) + static_cast<float>(bias[of.channel(i)]);
  }
};

template <class T>
struct BatchNormForward {
  OfChannels of;
  const T* x;
  const float *mean, *variance;
  const T *scale, *shift;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t c = of.channel(i);
    const float factor = static_cast<float>(scale[c]) * inverse_deviation(variance[c]);
    y[i] = (static_cast<float>(x[i]) - mean[c]) * factor + static_cast<float>(shift[c]);
  }
};

template <class T>
struct BatchNormBackwardInput {
  OfChannels of;
  const T* x;
  const float *mean, *variance;
  const T *scale, *dy;
  const float *mean_dy, *slope;
  T* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t c = of.channel(i);
    const float factor = static_cast<float>(scale[c]) * inverse_deviation(variance[c]);
    const float centred = static_cast<float>(x[i]) - mean[c];
    dx[i] = factor * (static_cast<float>(dy[i]) - mean_dy[c] - centred * slope[c]);
  }
};

/// Two elements a channel: its mean, and its variance.
struct MoveStatistics {
  pipewright_cuda_statistics of;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const float count = of.micro_batches[0];
    if (count == 0) return;
    if (i == 0) of.updates[0] += 1;
    const auto channels = static_cast<std::size_t>(of.channels);
    const bool is_mean = i < channels;
    const std::size_t c = is_mean ? i : i - channels;
    float& running = (is_mean ? of.mean : of.variance)[c];
    running += of.rate * ((is_mean ? of.means : of.variances)[c] / count - running);
  }
};

template <class T>
struct GlobalAverageForward {
  int width;
  const T* x;
  T* y;
  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t plane) const {
    const float sum = lanes.sum(width, Same{}, x + plane * static_cast<std::size_t>(width));
    const float mean = sum / static_cast<float>(width);
    T* const to = y + plane;
    lanes.first([=] { *to = mean; });
  }
};

template <class T>
struct GlobalAverageBackwardInput {
  std::size_t pixels;
  const T* dy;
  T* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    dx[i] = static_cast<float>(dy[i / pixels]) / static_cast<float>(pixels);
  }
};

}  // namespace pipewright::exec::cuda
