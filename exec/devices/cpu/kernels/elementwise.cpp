// Bias, relu, gelu, swiglu and the sum of a residual connection.
#include <algorithm>
#include <array>

#include "exec/devices/cpu/kernels/sigmoid.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

// gelu(x) = x · s with s = 1 / (1 + e^(-2u)), u = kSlope · (x + kCubic x^3), because
// (1 + tanh u) / 2 is that sigmoid.
constexpr float kSlope = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

/// Elements that are worked on at a time, so that what lies between two loops stays in cache.
constexpr std::size_t kElementsABlock = 512;

void gelu_sigmoid(std::size_t n, const float* x, float* s) {
  cpu::sigmoid_of_negative(
      n, [x](std::size_t i) { return -2.0F * kSlope * (x[i] + kCubic * x[i] * x[i] * x[i]); }, s);
}

}  // namespace

void bias_forward(int rows, int width, const float* bias, float* y) {
  for (int r = 0; r < rows; ++r, y += width) {
    for (int j = 0; j < width; ++j) y[j] += bias[j];
  }
}

void bias_backward_weight(int rows, int width, const float* dy, float* dbias) {
  for (int r = 0; r < rows; ++r, dy += width) {
    for (int j = 0; j < width; ++j) dbias[j] += dy[j];
  }
}

void relu_forward(std::size_t n, const float* x, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

void relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx) {
  for (std::size_t i = 0; i < n; ++i) dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

void gelu_forward(std::size_t n, const float* x, float* y) {
  std::array<float, kElementsABlock> s;
  for (std::size_t begin = 0; begin < n; begin += kElementsABlock) {
    const std::size_t size = std::min(kElementsABlock, n - begin);
    gelu_sigmoid(size, x + begin, s.data());
    for (std::size_t i = 0; i < size; ++i) y[begin + i] = x[begin + i] * s[i];
  }
}

// d(x s)/dx = s + x s (1 - s) 2u', with u' = kSlope · (1 + 3 kCubic x^2).
void gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx) {
  std::array<float, kElementsABlock> s;
  for (std::size_t begin = 0; begin < n; begin += kElementsABlock) {
    const std::size_t size = std::min(kElementsABlock, n - begin);
    gelu_sigmoid(size, x + begin, s.data());
    for (std::size_t i = 0; i < size; ++i) {
      const float v = x[begin + i];
      const float twice_slope = 2.0F * kSlope * (1.0F + 3.0F * kCubic * v * v);
      dx[begin + i] = dy[begin + i] * (s[i] + v * s[i] * (1.0F - s[i]) * twice_slope);
    }
  }
}

void swiglu_forward(int rows, int width, const float* x, float* y) {
  std::array<float, kElementsABlock> s;
  const auto half = static_cast<std::size_t>(width);
  for (int r = 0; r < rows; ++r, x += 2 * half, y += half) {
    for (std::size_t begin = 0; begin < half; begin += kElementsABlock) {
      const std::size_t size = std::min(kElementsABlock, half - begin);
      const float* gate = x + begin;
      cpu::sigmoid(size, gate, s.data());
      for (std::size_t i = 0; i < size; ++i) y[begin + i] = gate[i] * s[i] * gate[half + i];
    }
  }
}

// d silu(v)/dv = s + v s (1 - s).
void swiglu_backward_input(int rows, int width, const float* x, const float* dy, float* dx) {
  std::array<float, kElementsABlock> s;
  const auto half = static_cast<std::size_t>(width);
  for (int r = 0; r < rows; ++r, x += 2 * half, dy += half, dx += 2 * half) {
    for (std::size_t begin = 0; begin < half; begin += kElementsABlock) {
      const std::size_t size = std::min(kElementsABlock, half - begin);
      const float* gate = x + begin;
      cpu::sigmoid(size, gate, s.data());
      for (std::size_t i = 0; i < size; ++i) {
        const float v = gate[i], d = dy[begin + i];
        dx[begin + i] = d * gate[half + i] * (s[i] + v * s[i] * (1.0F - s[i]));
        dx[half + begin + i] = d * (v * s[i]);
      }
    }
  }
}

void add_to(std::size_t n, const float* x, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace pipewright::exec
