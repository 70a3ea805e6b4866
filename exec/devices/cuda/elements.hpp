// What a kernel does for one element, for the kernels whose elements do not look at one another.
// Each operation is that of exec/layers/ops.hpp and exec/layers/optimizer.hpp, step for step in the
// order of exec/devices/cpu/kernels/, so that both give the same bits. Plain data that points into
// the memory of whoever runs it; element i of n may be done at any time, by any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/base/random.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

struct BiasForward {
  std::size_t width;
  const float* bias;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] += bias[i % width]; }
};

struct ReluForward {
  const float* x;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = x[i] < 0.0F ? 0.0F : x[i]; }
};

struct ReluBackwardInput {
  const float *y, *dy;
  float* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
  }
};

/// gelu(x) = x · gelu_sigmoid(x), the tanh form (exec/devices/cpu/kernels/elementwise.cpp).
PIPEWRIGHT_HOST_DEVICE inline float gelu_sigmoid(float x) {
  constexpr float kSlope = 0.7978845608F, kCubic = 0.044715F, kEnough = 60.0F;
  const float minus_2u = -2.0F * kSlope * (x + kCubic * x * x * x);
  const float below = minus_2u > kEnough ? kEnough : minus_2u;
  return 1.0F / (1.0F + cpu::exp_in_range(below < -kEnough ? -kEnough : below));
}

struct GeluForward {
  const float* x;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = x[i] * gelu_sigmoid(x[i]); }
};

struct GeluBackwardInput {
  const float *x, *dy;
  float* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    constexpr float kSlope = 0.7978845608F, kCubic = 0.044715F;
    const float v = x[i], s = gelu_sigmoid(v);
    const float twice_slope = 2.0F * kSlope * (1.0F + 3.0F * kCubic * v * v);
    dx[i] = dy[i] * (s + v * s * (1.0F - s) * twice_slope);
  }
};

struct AddTo {
  const float* x;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] += x[i]; }
};

struct Scale {
  float factor;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] *= factor; }
};

struct ScaleBy {
  const float* factor;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    if (*factor != 1.0F) y[i] *= *factor;
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

struct EmbeddingForward {
  std::size_t width, sequence;
  const std::int32_t* ids;
  const float *tokens, *positions;  // positions may be null
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    const float token = tokens[static_cast<std::size_t>(ids[row]) * width + column];
    y[i] = positions == nullptr ? token : token + positions[row % sequence * width + column];
  }
};

struct CrossEntropyBackwardInput {
  std::size_t width;
  const float* probabilities;
  const std::int32_t* labels;
  float scale;
  float* dlogits;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const bool is_label = i % width == static_cast<std::size_t>(labels[i / width]);
    dlogits[i] = (is_label ? probabilities[i] - 1.0F : probabilities[i]) * scale;
  }
};

struct MseBackwardInput {
  const float *y, *target;
  float factor;  // twice the scale
  float* dy;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    dy[i] = factor * (y[i] - target[i]);
  }
};

struct SgdUpdate {
  float rate;
  const float* gradient;
  float* value;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { value[i] -= rate * gradient[i]; }
};

struct AdamwUpdate {
  std::size_t second_from;
  const pipewright_cuda_adamw* factors;
  const float* gradient;
  float *mean, *square, *value;

  /// As exec/devices/cpu/kernels/optimizer.cpp: moments that shrink for ever end at 0.
  PIPEWRIGHT_HOST_DEVICE static float without_dust(float x) {
    return std::fabs(x) < 1e-30F ? 0.0F : x;
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const pipewright_cuda_adamw& f = factors[i < second_from ? 0 : 1];
    const float g = gradient[i];
    const float m = without_dust(f.keep_mean * mean[i] + f.take_mean * g);
    const float s = without_dust(f.keep_square * square[i] + f.take_square * g * g);
    mean[i] = m;
    square[i] = s;
    value[i] =
        f.keep_value * value[i] - f.rate * m / (std::sqrt(s * f.square_correction) + f.epsilon);
  }
};

}  // namespace pipewright::exec::cuda
