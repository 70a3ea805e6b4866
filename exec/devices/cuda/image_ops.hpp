// The operators of image models (exec/layers/tensor_ops.hpp, ImageOps) on a GPU. A convolution is
// patches laid out as columns and one batch of products: of all groups and images for F and I, and
// for W of all groups, with the images side by side, so that each number is one sum. Patches of so
// many images are laid out at a time as fit into `most_bytes`. In exact numerics the results
// have the CPU's bits.
#pragma once

#include "exec/devices/cuda/queue.hpp"
#include "exec/devices/cuda/unwritten_gradients.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec::cuda {

class QueueImageOps final : public ImageOps {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

  /// Both must outlive it.
  QueueImageOps(Queue& queue, UnwrittenGradients& unwritten, std::size_t most_bytes = kMostBytes)
      : queue_(queue), unwritten_(unwritten), most_bytes_(most_bytes) {}

  void add_scaled(std::size_t n, float factor, const float* x, float* y) override;
  void add_one(float* y) override;
  void move_statistics(const StatisticsMove& move) override;
  void conv2d_forward(const ConvShape& shape, const float* x, const float* w, float* y) override;
  void conv2d_backward_input(const ConvShape& shape, const float* dy, const float* w,
                             float* dx) override;
  void conv2d_backward_weight(const ConvShape& shape, const float* x, const float* dy,
                              float* dw) override;
  void channel_bias_forward(const ChannelShape& shape, const float* bias, float* y) override;
  void channel_bias_backward_weight(const ChannelShape& shape, const float* dy,
                                    float* dbias) override;
  void batch_statistics(const ChannelShape& shape, const float* x, float* mean,
                        float* variance) override;
  void batch_norm_forward(const ChannelShape& shape, const float* x, const float* mean,
                          const float* variance, const float* scale, const float* shift,
                          float* y) override;
  void batch_norm_backward_input(const ChannelShape& shape, const float* x, const float* mean,
                                 const float* variance, const float* scale, const float* dy,
                                 float* dx, float* dscale, float* dshift) override;
  void max_pool_forward(const PoolShape& shape, const float* x, float* y,
                        std::int32_t* places) override;
  void max_pool_backward_input(const PoolShape& shape, const std::int32_t* places, const float* dy,
                               float* dx) override;
  void average_pool_forward(const PoolShape& shape, const float* x, float* y) override;
  void average_pool_backward_input(const PoolShape& shape, const float* dy, float* dx) override;
  void global_average_pool_forward(const ChannelShape& shape, const float* x, float* y) override;
  void global_average_pool_backward_input(const ChannelShape& shape, const float* dy,
                                          float* dx) override;

 private:
  const pipewright_cuda_image_kernels& kernels() const { return queue_.kernels().images; }
  float* channel_scratch(const ChannelShape& shape);

  Queue& queue_;
  UnwrittenGradients& unwritten_;
  const std::size_t most_bytes_;
};

}  // namespace pipewright::exec::cuda
