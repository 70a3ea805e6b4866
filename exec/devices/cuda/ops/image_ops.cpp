#include "exec/devices/cuda/image_ops.hpp"

#include <algorithm>

namespace pipewright::exec::cuda {
namespace {

pipewright_cuda_window window_of(int images, const ImageShape& in, const ImageShape& out,
                                 const Window& w) {
  return {images,    in.channels, in.height, in.width, out.height,
          out.width, w.size,      w.stride,  w.padding};
}
pipewright_cuda_window window_of(const PoolShape& s) {
  return window_of(s.images, s.in, s.out(), s.window);
}
pipewright_cuda_channels channels_of(const ChannelShape& s) {
  return {s.images, s.channels, s.pixels};
}

/// Some images of a convolution, whose patches are laid out at once.
class Convolved {
 public:
  Convolved(const ConvShape& shape, std::size_t number_bytes, int first, int count)
      : s_(shape),
        number_bytes_(number_bytes),
        first_(first),
        count_(count),
        window_(window_of(count, shape.in, shape.out(), shape.window)) {}

  const pipewright_cuda_window& window() const { return window_; }
  int count() const { return count_; }
  std::int64_t pixels() const { return std::int64_t{window_.out_height} * window_.out_width; }
  /// Of the patches, of all groups.
  std::int64_t rows() const { return std::int64_t{s_.groups} * s_.patch(); }
  std::int64_t filters() const { return s_.filters / s_.groups; }
  std::size_t column_numbers() const {
    return static_cast<std::size_t>(rows() * pixels() * count_);
  }
  std::size_t gradient_numbers() const {
    return static_cast<std::size_t>(s_.filters * pixels() * count_);
  }
  std::size_t bytes(std::size_t numbers) const { return numbers * number_bytes_; }

  /// An image's columns behind the other's; or the images side by side in each row.
  pipewright_cuda_columns one_by_one() const { return {pixels(), rows() * pixels()}; }
  pipewright_cuda_columns side_by_side() const { return {count_ * pixels(), pixels()}; }
  /// The columns of an image are the image.
  bool is_plain() const { return s_.window == Window{}; }

  const void* input(const float* x) const { return at(x, std::int64_t{first_} * s_.in.numbers()); }
  const void* output(const float* y) const { return at(y, first_ * s_.filters * pixels()); }

  /// c = a · b of each group; batches over images unless their steps are 0.
  pipewright_cuda_gemm product(std::int64_t m, std::int64_t n, std::int64_t k) const {
    pipewright_cuda_gemm product{};
    product.m = static_cast<int>(m);
    product.n = static_cast<int>(n);
    product.k = static_cast<int>(k);
    product.outer = s_.groups;
    product.inner = 1;
    product.alpha = 1.0F;
    return product;
  }
  pipewright_cuda_matrix weights(const float* w, bool is_transposed) const {
    return {w, s_.patch(), is_transposed ? 1 : 0, filters() * s_.patch(), 0};
  }
  /// Of each image, as it lies.
  pipewright_cuda_matrix image_of(const void* y) const {
    return {y, static_cast<int>(pixels()), 0, filters() * pixels(), s_.filters * pixels()};
  }
  pipewright_cuda_matrix columns_of(const void* columns) const {
    return {columns, static_cast<int>(pixels()), 0, s_.patch() * pixels(), rows() * pixels()};
  }

 private:
  const void* at(const float* numbers, std::int64_t place) const {
    return reinterpret_cast<const std::byte*>(numbers) +
           place * static_cast<std::int64_t>(number_bytes_);
  }

  const ConvShape& s_;
  const std::size_t number_bytes_;
  const int first_, count_;
  const pipewright_cuda_window window_;
};

/// Calls with(images) for as many at a time as there is room for.
template <class With>
void for_images(const ConvShape& shape, std::size_t number_bytes, std::size_t most_bytes,
                With with) {
  const Convolved one(shape, number_bytes, 0, 1);
  const std::size_t each = one.bytes(one.column_numbers() + one.gradient_numbers());
  const auto most = static_cast<int>(
      std::clamp<std::size_t>(most_bytes / each, 1, static_cast<std::size_t>(shape.images)));
  for (int first = 0; first < shape.images; first += most)
    with(Convolved(shape, number_bytes, first, std::min(most, shape.images - first)));
}

void put_result(pipewright_cuda_gemm& product, const pipewright_cuda_matrix& c) {
  product.c = const_cast<void*>(c.data);
  product.c_stride = c.stride;
  product.c_outer_step = c.outer_step;
  product.c_inner_step = c.inner_step;
}

}  // namespace

// --- Convolution ---

void QueueImageOps::conv2d_forward(const ConvShape& s, const float* x, const float* w, float* y) {
  for_images(s, queue_.number_bytes(), most_bytes_, [&](const Convolved& images) {
    const void* columns = images.input(x);
    if (!images.is_plain()) {
      void* const made = queue_.scratch(images.bytes(images.column_numbers()));
      const pipewright_cuda_columns where = images.one_by_one();
      queue_.run(kernels().unfold, &images.window(), &where, columns, made);
      columns = made;
    }
    pipewright_cuda_gemm product = images.product(images.filters(), images.pixels(), s.patch());
    product.inner = images.count();
    product.a = images.weights(w, false);
    product.b = images.columns_of(columns);
    put_result(product, images.image_of(images.output(y)));
    queue_.multiply(product);
  });
}

void QueueImageOps::conv2d_backward_input(const ConvShape& s, const float* dy, const float* w,
                                          float* dx) {
  for_images(s, queue_.number_bytes(), most_bytes_, [&](const Convolved& images) {
    void* const to = const_cast<void*>(images.input(dx));
    void* const columns =
        images.is_plain() ? to : queue_.scratch(images.bytes(images.column_numbers()));
    pipewright_cuda_gemm product = images.product(s.patch(), images.pixels(), images.filters());
    product.inner = images.count();
    product.a = images.weights(w, true);
    product.b = images.image_of(images.output(dy));
    put_result(product, images.columns_of(columns));
    queue_.multiply(product);
    if (images.is_plain()) return;
    const pipewright_cuda_columns where = images.one_by_one();
    queue_.run(kernels().fold, &images.window(), &where, columns, to);
  });
}

/// One chain over all images and places, as on a CPU; what there is no room for goes on with it.
void QueueImageOps::conv2d_backward_weight(const ConvShape& s, const float* x, const float* dy,
                                           float* dw) {
  const std::size_t words =
      static_cast<std::size_t>(s.filters) * static_cast<std::size_t>(s.patch());
  float beta = unwritten_.begins(dw, words, queue_) ? 0.0F : 1.0F;
  for_images(s, queue_.number_bytes(), most_bytes_, [&](const Convolved& images) {
    constexpr std::size_t kBoundary = 256;  // what products like best
    const std::size_t column_bytes =
        (images.bytes(images.column_numbers()) + kBoundary - 1) / kBoundary * kBoundary;
    void* const columns = queue_.scratch(column_bytes + images.bytes(images.gradient_numbers()));
    const void* gradients = images.output(dy);
    const pipewright_cuda_columns where = images.side_by_side();
    queue_.run(kernels().unfold, &images.window(), &where, images.input(x), columns);
    if (images.count() > 1) {
      void* const gathered = static_cast<std::byte*>(columns) + column_bytes;
      const pipewright_cuda_channels shape{images.count(), s.filters,
                                           static_cast<int>(images.pixels())};
      queue_.run(kernels().gather_channels, &shape, gradients, gathered);
      gradients = gathered;
    }
    const std::int64_t along = images.count() * images.pixels();
    pipewright_cuda_gemm product = images.product(images.filters(), s.patch(), along);
    product.beta = beta;
    product.c_is_float = 1;
    const auto stride = static_cast<int>(along);
    product.a = {gradients, stride, 0, images.filters() * along, 0};
    product.b = {columns, stride, 1, s.patch() * along, 0};
    put_result(product, {dw, s.patch(), 0, images.filters() * s.patch(), 0});
    queue_.multiply(product);
    beta = 1.0F;
  });
}

// --- Channels ---

float* QueueImageOps::channel_scratch(const ChannelShape& s) {
  return static_cast<float*>(
      queue_.scratch(PIPEWRIGHT_CUDA_CHANNEL_WORDS(s.images, s.channels) * sizeof(float)));
}

void QueueImageOps::channel_bias_forward(const ChannelShape& s, const float* bias, float* y) {
  const auto shape = channels_of(s);
  queue_.run(kernels().channel_bias_forward, &shape, bias, y);
}

void QueueImageOps::channel_bias_backward_weight(const ChannelShape& s, const float* dy,
                                                 float* dbias) {
  const auto shape = channels_of(s);
  const int adds = unwritten_.begins(dbias, static_cast<std::size_t>(s.channels), queue_) ? 0 : 1;
  queue_.run(kernels().channel_bias_backward_weight, &shape, dy, channel_scratch(s), adds, dbias);
}

void QueueImageOps::batch_statistics(const ChannelShape& s, const float* x, float* mean,
                                     float* variance) {
  const auto shape = channels_of(s);
  queue_.run(kernels().batch_statistics, &shape, x, channel_scratch(s), mean, variance);
}

void QueueImageOps::batch_norm_forward(const ChannelShape& s, const float* x, const float* mean,
                                       const float* variance, const float* scale,
                                       const float* shift, float* y) {
  const auto shape = channels_of(s);
  queue_.run(kernels().batch_norm_forward, &shape, x, mean, variance, scale, shift, y);
}

void QueueImageOps::batch_norm_backward_input(const ChannelShape& s, const float* x,
                                              const float* mean, const float* variance,
                                              const float* scale, const float* dy, float* dx,
                                              float* dscale, float* dshift) {
  const auto shape = channels_of(s);
  queue_.run(kernels().batch_norm_backward_input, &shape, x, mean, variance, scale, dy,
             channel_scratch(s), dx, dscale, dshift);
}

void QueueImageOps::move_statistics(const StatisticsMove& move) {
  const pipewright_cuda_statistics of{static_cast<int>(move.channels),
                                      move.rate,
                                      move.means,
                                      move.variances,
                                      move.micro_batches,
                                      move.mean,
                                      move.variance,
                                      move.updates};
  queue_.run(kernels().move_statistics, &of);
}

void QueueImageOps::add_scaled(std::size_t n, float factor, const float* x, float* y) {
  queue_.run(kernels().add_scaled, n, factor, x, unwritten_.begins(y, n, queue_) ? 0 : 1, y);
}

void QueueImageOps::add_one(float* y) {
  queue_.run(kernels().add_one, unwritten_.begins(y, 1, queue_) ? 0 : 1, y);
}

// --- Pooling ---

void QueueImageOps::max_pool_forward(const PoolShape& s, const float* x, float* y,
                                     std::int32_t* places) {
  const auto window = window_of(s);
  queue_.run(kernels().max_pool_forward, &window, x, y, places);
}

void QueueImageOps::max_pool_backward_input(const PoolShape& s, const std::int32_t* places,
                                            const float* dy, float* dx) {
  const auto window = window_of(s);
  queue_.run(kernels().max_pool_backward_input, &window, places, dy, dx);
}

void QueueImageOps::average_pool_forward(const PoolShape& s, const float* x, float* y) {
  const auto window = window_of(s);
  queue_.run(kernels().average_pool_forward, &window, x, y);
}

void QueueImageOps::average_pool_backward_input(const PoolShape& s, const float* dy, float* dx) {
  const auto window = window_of(s);
  queue_.run(kernels().average_pool_backward_input, &window, dy, dx);
}

void QueueImageOps::global_average_pool_forward(const ChannelShape& s, const float* x, float* y) {
  const auto shape = channels_of(s);
  queue_.run(kernels().global_average_pool_forward, &shape, x, y);
}

void QueueImageOps::global_average_pool_backward_input(const ChannelShape& s, const float* dy,
                                                       float* dx) {
  const auto shape = channels_of(s);
  queue_.run(kernels().global_average_pool_backward_input, &shape, dy, dx);
}

}  // namespace pipewright::exec::cuda
