// What a channel of many images is to its own mean: batch norm, and the bias of convolutions.
#include <cmath>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/layers/image_ops.hpp"

namespace pipewright::exec {
namespace {

/// Calls plane(where it begins) for each image's part of a channel.
template <class Plane>
void each_plane(const ChannelShape& s, int channel, Plane plane) {
  const auto pixels = static_cast<std::size_t>(s.pixels);
  const auto channels = static_cast<std::size_t>(s.channels);
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.images); ++i) {
    plane((i * channels + static_cast<std::size_t>(channel)) * pixels);
  }
}

/// Sum of term(i) over all numbers of a channel; the planes' sums are added in double.
template <class Term>
double channel_sum(const ChannelShape& s, int channel, Term term) {
  double total = 0;
  each_plane(s, channel, [&](std::size_t at) {
    total += static_cast<double>(
        cpu::sum(s.pixels, [&](int p) { return term(at + static_cast<std::size_t>(p)); }));
  });
  return total;
}

float inverse_deviation(float variance) { return 1.0F / std::sqrt(variance + kBatchNormEpsilon); }

}  // namespace

void channel_bias_forward(const ChannelShape& s, const float* bias, float* y) {
  for (int c = 0; c < s.channels; ++c) {
    each_plane(s, c, [&](std::size_t at) {
      for (int p = 0; p < s.pixels; ++p) y[at + static_cast<std::size_t>(p)] += bias[c];
    });
  }
}

void channel_bias_backward_weight(const ChannelShape& s, const float* dy, float* dbias) {
  for (int c = 0; c < s.channels; ++c) {
    dbias[c] += static_cast<float>(channel_sum(s, c, [dy](std::size_t i) { return dy[i]; }));
  }
}

void batch_statistics(const ChannelShape& s, const float* x, float* mean, float* variance) {
  const double count = 1.0 * s.images * s.pixels;
  for (int c = 0; c < s.channels; ++c) {
    const auto middle =
        static_cast<float>(channel_sum(s, c, [x](std::size_t i) { return x[i]; }) / count);
    mean[c] = middle;
    variance[c] = static_cast<float>(channel_sum(s, c,
                                                 [x, middle](std::size_t i) {
                                                   const float d = x[i] - middle;
                                                   return d * d;
                                                 }) /
                                     count);
  }
}

void batch_norm_forward(const ChannelShape& s, const float* x, const float* mean,
                        const float* variance, const float* scale, const float* shift, float* y) {
  for (int c = 0; c < s.channels; ++c) {
    const float middle = mean[c], factor = scale[c] * inverse_deviation(variance[c]);
    const float added = shift[c];
    each_plane(s, c, [&](std::size_t at) {
      const float* const from = x + at;
      float* const to = y + at;
      for (int p = 0; p < s.pixels; ++p) to[p] = (from[p] - middle) * factor + added;
    });
  }
}

void batch_norm_backward_input(const ChannelShape& s, const float* x, const float* mean,
                               const float* variance, const float* scale, const float* dy,
                               float* dx, float* dscale, float* dshift) {
  const double count = 1.0 * s.images * s.pixels;
  for (int c = 0; c < s.channels; ++c) {
    const float middle = mean[c], inverse = inverse_deviation(variance[c]);
    const double sum = channel_sum(s, c, [dy](std::size_t i) { return dy[i]; });
    const double product =
        channel_sum(s, c, [=](std::size_t i) { return dy[i] * ((x[i] - middle) * inverse); });
    dshift[c] = static_cast<float>(sum);
    dscale[c] = static_cast<float>(product);
    if (dx == nullptr) continue;
    const auto mean_dy = static_cast<float>(sum / count);
    const float slope = static_cast<float>(product / count) * inverse;
    const float factor = scale[c] * inverse;
    each_plane(s, c, [&](std::size_t at) {
      const float *const from = x + at, *const g = dy + at;
      float* const to = dx + at;
      for (int p = 0; p < s.pixels; ++p) {
        to[p] = factor * (g[p] - mean_dy - (from[p] - middle) * slope);
      }
    });
  }
}

void move_statistics(const StatisticsMove& m) {
  const float count = m.micro_batches[0];
  if (count == 0) return;
  for (std::size_t c = 0; c < m.channels; ++c) {
    m.mean[c] += m.rate * (m.means[c] / count - m.mean[c]);
    m.variance[c] += m.rate * (m.variances[c] / count - m.variance[c]);
  }
  m.updates[0] += 1;
}

void global_average_pool_forward(const ChannelShape& s, const float* x, float* y) {
  const auto pixels = static_cast<std::size_t>(s.pixels);
  const std::size_t planes =
      static_cast<std::size_t>(s.images) * static_cast<std::size_t>(s.channels);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    const float* const from = x + plane * pixels;
    y[plane] = cpu::sum(s.pixels, [from](int p) { return from[p]; }) / static_cast<float>(s.pixels);
  }
}

void global_average_pool_backward_input(const ChannelShape& s, const float* dy, float* dx) {
  const auto pixels = static_cast<std::size_t>(s.pixels);
  const std::size_t planes =
      static_cast<std::size_t>(s.images) * static_cast<std::size_t>(s.channels);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    const float share = dy[plane] / static_cast<float>(s.pixels);
    for (std::size_t p = 0; p < pixels; ++p) dx[plane * pixels + p] = share;
  }
}

}  // namespace pipewright::exec
