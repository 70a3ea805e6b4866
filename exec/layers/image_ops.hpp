// The operators of image models, by the rules of exec/layers/ops.hpp: convolution, batch norm,
// pooling; F, I and W apart. A batch of images is [images][channels][height][width].
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/model.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec {

// --- Convolution --------------------------------------------------------------------------------
// y[image][f][p] = sum over k in the patch of place p of w[f][k] · x[image][k]: a matrix product
// of the weights with the patches laid out as columns. Filter f sees the channels of its group
// only; k counts channel, row and column of the patch. For small images several stand side by side
// in one product.

struct ConvShape {
  int images = 1;
  ImageShape in;
  int filters = 1;
  Window window;
  int groups = 1;
  Numerics numerics = Numerics::Fast;  // of the matrix products

  ImageShape out() const;
  /// Numbers of a patch: rows of the columns' matrix.
  int patch() const { return in.channels / groups * window.size * window.size; }
  /// Images that stand side by side in one product.
  int together() const;
};
/// Floats that each of the three needs in `scratch`.
std::size_t conv2d_scratch(const ConvShape& shape);
/// w[filters][patch].
void conv2d_forward(const ConvShape& shape, const float* x, const float* w, float* y,
                    float* scratch);
void conv2d_backward_input(const ConvShape& shape, const float* dy, const float* w, float* dx,
                           float* scratch);
void conv2d_backward_weight(const ConvShape& shape, const float* x, const float* dy, float* dw,
                            float* scratch);

/// Images of `channels` times `pixels` numbers.
struct ChannelShape {
  int images = 1, channels = 1, pixels = 1;
};
/// y += bias[channel]; its I is the identity.
void channel_bias_forward(const ChannelShape& shape, const float* bias, float* y);
void channel_bias_backward_weight(const ChannelShape& shape, const float* dy, float* dbias);

// --- Batch norm (Ioffe and Szegedy, arXiv:1502.03167) -------------------------------------------

inline constexpr float kBatchNormEpsilon = 1e-5F;

/// mean[channels] and the variance[channels] around it, divided by their number.
void batch_statistics(const ChannelShape& shape, const float* x, float* mean, float* variance);
/// y = (x - mean) / sqrt(variance + epsilon) · scale + shift, by channel. y may be x.
void batch_norm_forward(const ChannelShape& shape, const float* x, const float* mean,
                        const float* variance, const float* scale, const float* shift, float* y);
/// dx, where mean and variance are those of x; and this micro-batch's gradients of scale and shift,
/// which I needs anyway: they overwrite. dx may be dy, or null if only the two are wanted.
void batch_norm_backward_input(const ChannelShape& shape, const float* x, const float* mean,
                               const float* variance, const float* scale, const float* dy,
                               float* dx, float* dscale, float* dshift);

/// Of a layer's channels; where no micro-batch has added anything, nothing moves.
struct StatisticsMove {
  std::size_t channels = 0;
  float rate = 0;                                      // how far they move
  const float *means = nullptr, *variances = nullptr;  // sums over the micro-batches
  const float* micro_batches = nullptr;                // one number
  float *mean = nullptr, *variance = nullptr;
  float* updates = nullptr;  // counts them, one number
};
/// Running statistics towards the mean of what the micro-batches have added up.
void move_statistics(const StatisticsMove& move);

// --- Pooling ------------------------------------------------------------------------------------

struct PoolShape {
  int images = 1;
  ImageShape in;
  Window window;

  ImageShape out() const;
};
/// places[image][channel][out]: where in its channel the (first) largest number of the window
/// stands; kept for I.
void max_pool_forward(const PoolShape& shape, const float* x, float* y, std::int32_t* places);
void max_pool_backward_input(const PoolShape& shape, const std::int32_t* places, const float* dy,
                             float* dx);
/// The sum of what the window holds of the image, divided by all its places.
void average_pool_forward(const PoolShape& shape, const float* x, float* y);
void average_pool_backward_input(const PoolShape& shape, const float* dy, float* dx);
/// y[image][channel]: the mean.
void global_average_pool_forward(const ChannelShape& shape, const float* x, float* y);
void global_average_pool_backward_input(const ChannelShape& shape, const float* dy, float* dx);

}  // namespace pipewright::exec
