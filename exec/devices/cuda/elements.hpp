// What a kernel does for one element, for the kernels whose elements do not look at one another.
// Each operation is that of exec/layers/ops.hpp and exec/layers/optimizer.hpp, step for step in the
// order of exec/devices/cpu/kernels/, so that both give the same bits. Plain data that points into
// the memory of whoever runs it; element i of n may be done at any time, by any thread. T, X and Y
// are float or Bfloat16; all of it is computed in float.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/base/random.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/packs.hpp"
#include "exec/devices/cuda/places.hpp"
#include "exec/devices/cuda/sigmoids.hpp"

namespace pipewright::exec::cuda {

/// y[i] += bias[column of i].
template <class T>
struct BiasForward {
  std::size_t width;
  const T* bias;
  T* y;

  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = y[i] + bias[i % width]; }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    Loaded<T, kPack> to(y + i);
    PlaceInRow place(i, width);
    for (int k = 0; k < kPack; ++k, place.next()) to[k] = to[k] + bias[place.column];
    to.store(y + i);
  }
};

struct Relu {
  PIPEWRIGHT_HOST_DEVICE float operator()(float x) const { return x < 0.0F ? 0.0F : x; }
};
struct ReluGradient {
  PIPEWRIGHT_HOST_DEVICE float operator()(float y, float dy) const { return y > 0.0F ? dy : 0.0F; }
};

/// T: of which table.
template <class T>
struct Gelu {
  PIPEWRIGHT_HOST_DEVICE float operator()(float x) const { return x * Sigmoid<T>::of_gelu(x); }
};
template <class T>
struct GeluGradient {
  PIPEWRIGHT_HOST_DEVICE float operator()(float x, float dy) const {
    const float s = Sigmoid<T>::of_gelu(x);
    const float twice_slope = 2.0F * kGeluSlope * (1.0F + 3.0F * kGeluCubic * x * x);
    return dy * (s + x * s * (1.0F - s) * twice_slope);
  }
};

struct Times {
  float factor;
  PIPEWRIGHT_HOST_DEVICE float operator()(float x) const { return x * factor; }
};

/// y[i] *= *factor, which mostly is 1.
struct ScaleBy {
  const float* factor;
  float* y;

  static constexpr int kPack = kPackOf<float>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    if (*factor != 1.0F) y[i] *= *factor;
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const float by = *factor;
    if (by == 1.0F) return;
    Loaded<float, kPack> all(y + i);
    for (int k = 0; k < kPack; ++k) all[k] *= by;
    all.store(y + i);
  }
};

/// As exec/layers/parameters.cpp fills them.
struct Start {
  std::uint64_t key;
  float bound, value;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    y[i] = bound == 0.0F ? value : bound * symmetric_uniform(key, i);
  }
};

/// Pointers that come with the launch: at most 4 KiB of arguments.
struct KeepPointers {
  static constexpr std::size_t kMost = 384;
  const void* values[kMost];
  void** to;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    to[i] = const_cast<void*>(values[i]);
  }
};

template <class T>
struct EmbeddingForward {
  std::size_t width;
  pipewright_cuda_places places;
  const std::int32_t* ids;
  const T *tokens, *positions;  // positions may be null
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    const float token = tokens[static_cast<std::size_t>(ids[row]) * width + column];
    y[i] = positions == nullptr
               ? token
               : token + positions[place_of(places, row_of_sample(places, row)) * width + column];
  }
};

template <class T>
struct CrossEntropyBackwardInput {
  std::size_t width;
  const T* probabilities;
  const std::int32_t* labels;
  float scale;
  T* dlogits;
  std::size_t first = 0;  // where ranks divide the columns, of this one's

  PIPEWRIGHT_HOST_DEVICE float of(float probability, std::size_t row, std::size_t column) const {
    const bool is_label = first + column == static_cast<std::size_t>(labels[row]);
    return (is_label ? probability - 1.0F : probability) * scale;
  }
  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    dlogits[i] = of(probabilities[i], i / width, i % width);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    Loaded<T, kPack> all(probabilities + i);
    PlaceInRow place(i, width);
    for (int k = 0; k < kPack; ++k, place.next()) all[k] = of(all[k], place.row, place.column);
    all.store(dlogits + i);
  }
};

struct MseGradient {
  float factor;  // twice the scale
  PIPEWRIGHT_HOST_DEVICE float operator()(float y, float target) const {
    return factor * (y - target);
  }
};

// Updates. `read` may be null: what layers read of the weights, rounded.

struct SgdUpdate {
  float rate;
  const float* gradient;
  float* value;
  Bfloat16* read;

  static constexpr int kPack = kPackOf<float>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    value[i] -= rate * gradient[i];
    if (read != nullptr) read[i] = value[i];
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const Loaded<float, kPack> g(gradient + i);
    Loaded<float, kPack> v(value + i);
    Loaded<Bfloat16, kPack> rounded;
    for (int k = 0; k < kPack; ++k) rounded[k] = v[k] -= rate * g[k];
    v.store(value + i);
    if (read != nullptr) rounded.store(read + i);
  }
};

struct AdamwUpdate {
  std::size_t second_from;
  const pipewright_cuda_adamw* factors;
  const float* gradient;
  float *mean, *square, *value;
  Bfloat16* read;

  /// As exec/devices/cpu/kernels/optimizer.cpp: moments that shrink for ever end at 0.
  PIPEWRIGHT_HOST_DEVICE static float without_dust(float x) {
    return std::fabs(x) < 1e-30F ? 0.0F : x;
  }
  PIPEWRIGHT_HOST_DEVICE void update(std::size_t i, float g, float& m, float& s, float& v) const {
    const pipewright_cuda_adamw& f = factors[i < second_from ? 0 : 1];
    m = without_dust(f.keep_mean * m + f.take_mean * g);
    s = without_dust(f.keep_square * s + f.take_square * g * g);
    v = f.keep_value * v - f.rate * m / (std::sqrt(s * f.square_correction) + f.epsilon);
  }
  static constexpr int kPack = kPackOf<float>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    update(i, gradient[i], mean[i], square[i], value[i]);
    if (read != nullptr) read[i] = value[i];
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const Loaded<float, kPack> g(gradient + i);
    Loaded<float, kPack> m(mean + i), s(square + i), v(value + i);
    Loaded<Bfloat16, kPack> rounded;
    for (int k = 0; k < kPack; ++k) {
      update(i + static_cast<std::size_t>(k), g[k], m[k], s[k], v[k]);
      rounded[k] = v[k];
    }
    m.store(mean + i);
    s.store(square + i);
    v.store(value + i);
    if (read != nullptr) rounded.store(read + i);
  }
};

}  // namespace pipewright::exec::cuda
