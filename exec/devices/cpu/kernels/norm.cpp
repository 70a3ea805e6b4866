// Layer norm and rms norm.
#include <cmath>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

void layer_norm_forward(const NormShape& shape, const float* x, const float* scale,
                        const float* shift, float* y, float* mean, float* inverse_deviation) {
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, x += width, y += width) {
    const float average = cpu::sum(width, [x](int j) { return x[j]; }) / static_cast<float>(width);
    // Two passes: the square of the mean may be far larger than the variance.
    const float variance = cpu::sum(width,
                                    [x, average](int j) {
                                      const float centred = x[j] - average;
                                      return centred * centred;
                                    }) /
                           static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(variance + kLayerNormEpsilon);
    for (int j = 0; j < width; ++j) y[j] = (x[j] - average) * inverse * scale[j] + shift[j];
    mean[r] = average;
    inverse_deviation[r] = inverse;
  }
}

// With z = (x - mean) · inverse the normalised row and g = dy · scale:
// dx = inverse · (g - mean(g) - z · mean(g z)).
void layer_norm_backward_input(const NormShape& shape, const float* x, const float* mean,
                               const float* inverse_deviation, const float* scale, const float* dy,
                               float* dx) {
  const int width = shape.width;
  const float per_width = 1.0F / static_cast<float>(width);
  for (int r = 0; r < shape.rows; ++r, x += width, dy += width, dx += width) {
    const float average = mean[r];
    const float inverse = inverse_deviation[r];
    const float g_mean = cpu::sum(width, [=](int j) { return dy[j] * scale[j]; }) * per_width;
    const float gz_mean = cpu::sum(width,
                                   [=](int j) {
                                     const float z = (x[j] - average) * inverse;
                                     return dy[j] * scale[j] * z;
                                   }) *
                          per_width;
    for (int j = 0; j < width; ++j) {
      const float z = (x[j] - average) * inverse;
      dx[j] = inverse * (dy[j] * scale[j] - g_mean - z * gz_mean);
    }
  }
}

void layer_norm_backward_weight(const NormShape& shape, const float* x, const float* mean,
                                const float* inverse_deviation, const float* dy, float* dscale,
                                float* dshift) {
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, x += width, dy += width) {
    const float average = mean[r];
    const float inverse = inverse_deviation[r];
    for (int j = 0; j < width; ++j) {
      dscale[j] += dy[j] * ((x[j] - average) * inverse);
      dshift[j] += dy[j];
    }
  }
}

void rms_norm_forward(const NormShape& shape, const float* x, const float* scale, float* y,
                      float* inverse_root) {
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, x += width, y += width) {
    const float square =
        cpu::sum(width, [x](int j) { return x[j] * x[j]; }) / static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(square + kLayerNormEpsilon);
    for (int j = 0; j < width; ++j) y[j] = x[j] * inverse * scale[j];
    inverse_root[r] = inverse;
  }
}

// With z = x · inverse and g = dy · scale: dx = inverse · (g - z · mean(g z)).
void rms_norm_backward_input(const NormShape& shape, const float* x, const float* inverse_root,
                             const float* scale, const float* dy, float* dx) {
  const int width = shape.width;
  const float per_width = 1.0F / static_cast<float>(width);
  for (int r = 0; r < shape.rows; ++r, x += width, dy += width, dx += width) {
    const float inverse = inverse_root[r];
    const float gz_mean =
        cpu::sum(width, [=](int j) { return dy[j] * scale[j] * (x[j] * inverse); }) * per_width;
    for (int j = 0; j < width; ++j) dx[j] = inverse * (dy[j] * scale[j] - x[j] * inverse * gz_mean);
  }
}

void rms_norm_backward_weight(const NormShape& shape, const float* x, const float* inverse_root,
                              const float* dy, float* dscale) {
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, x += width, dy += width) {
    const float inverse = inverse_root[r];
    for (int j = 0; j < width; ++j) dscale[j] += dy[j] * (x[j] * inverse);
  }
}

}  // namespace pipewright::exec
