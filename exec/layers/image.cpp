#include "exec/layers/image.hpp"

#include <utility>

#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

class ConvLayer final : public KeepingLayer {
 public:
  ConvLayer(const Layer& layer, const LayerSite& site)
      : KeepingLayer(layer, site, layer.in, layer.out),
        shape_{site.extent.rows(), layer.image, layer.image_out.channels, layer.window,
               layer.groups},
        channels_{site.extent.rows(), layer.image_out.channels, layer.image_out.pixels()},
        has_bias_(layer.bias) {}

 private:
  void compute(const Buffer& x, Buffer& y, Saved&) override {
    ops_.images().conv2d_forward(shape_, x.floats(), weights_[0].weights(), y.floats());
    if (has_bias_) ops_.images().channel_bias_forward(channels_, weights_[1].weights(), y.floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved&) override {
    ops_.images().conv2d_backward_input(shape_, dy.floats(), weights_[0].weights(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    const float* const dy = saved.buffers[kDy].floats();
    ops_.images().conv2d_backward_weight(shape_, saved.buffers[kX].floats(), dy,
                                         weights_[0].gradients());
    if (has_bias_)
      ops_.images().channel_bias_backward_weight(channels_, dy, weights_[1].gradients());
  }

  ConvShape shape_;
  ChannelShape channels_;
  bool has_bias_;
};

/// How far an update moves the running statistics.
constexpr float kMomentum = 0.1F;

class BatchNormLayer final : public PlainLeafLayer {
 public:
  BatchNormLayer(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, kSlots),
        shape_{site.extent.rows(), layer.image.channels, layer.image.pixels()},
        words_(site.extent.words(layer.in)),
        size_(static_cast<std::size_t>(layer.image.channels)),
        scale_(weights_[0]),
        shift_(weights_[1]),
        mean_(weights_[2]),
        variance_(weights_[3]),
        updates_(weights_[4]) {}

  Buffer forward_now(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    if (is_evaluating_) {
      normalise(x, mean_.weights(), variance_.weights(), y);
      return y;
    }
    const Buffer mean = saved.buffers[kMean] = ops_.take_floats(size_);
    const Buffer variance = saved.buffers[kVariance] = ops_.take_floats(size_);
    ops_.images().batch_statistics(shape_, x.floats(), mean.floats(), variance.floats());
    normalise(x, mean.floats(), variance.floats(), y);
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) dx = dy.is_shared() ? ops_.take(words_) : dy;
    Buffer sums = ops_.take_floats(2 * size_);
    ops_.images().batch_norm_backward_input(
        shape_, saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
        saved.buffers[kVariance].floats(), scale_.weights(), dy.floats(),
        wanted ? dx.floats() : nullptr, sums.floats(), sums.floats() + size_);
    saved.buffers[kX].reset();
    saved.buffers[kSums] = std::move(sums);
    return dx;
  }

  void update_statistics() override {
    ops_.images().move_statistics({.channels = size_,
                                   .rate = kMomentum,
                                   .means = mean_.gradients(),
                                   .variances = variance_.gradients(),
                                   .micro_batches = updates_.gradients(),
                                   .mean = mean_.values(),
                                   .variance = variance_.values(),
                                   .updates = updates_.values()});
  }

  void set_evaluating(bool evaluating) override { is_evaluating_ = evaluating; }

 private:
  enum Slot { kX, kMean, kVariance, kSums, kSlots };

  void add_gradients(Saved& saved) override {
    const float* const sums = saved.buffers[kSums].floats();
    ops_.add_to_gradient(size_, sums, scale_.gradients());
    ops_.add_to_gradient(size_, sums + size_, shift_.gradients());
    ops_.add_to_gradient(size_, saved.buffers[kMean].floats(), mean_.gradients());
    // The variance of all, of which the micro-batch is a sample: divided by one less than its
    // number.
    const float count = static_cast<float>(shape_.images) * static_cast<float>(shape_.pixels);
    const float correction = count > 1 ? count / (count - 1) : 1.0F;
    ops_.images().add_scaled(size_, correction, saved.buffers[kVariance].floats(),
                             variance_.gradients());
    ops_.images().add_one(updates_.gradients());
  }

  void normalise(const Buffer& x, const float* mean, const float* variance, Buffer& y) const {
    ops_.images().batch_norm_forward(shape_, x.floats(), mean, variance, scale_.weights(),
                                     shift_.weights(), y.floats());
  }

  ChannelShape shape_;
  std::size_t words_, size_;
  Parameter &scale_, &shift_, &mean_, &variance_, &updates_;
  bool is_evaluating_ = false;
};

class MaxPoolLayer final : public PlainLeafLayer {
 public:
  MaxPoolLayer(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, 1),
        shape_{site.extent.rows(), layer.image, layer.window},
        words_in_(site.extent.words(layer.in)),
        words_out_(site.extent.words(layer.out)) {}

  Buffer forward_now(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_out_);
    Buffer places = ops_.take_ids(words_out_);
    ops_.images().max_pool_forward(shape_, x.floats(), y.floats(), places.ids());
    saved.buffers[0] = std::move(places);
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer places = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = ops_.take(words_in_);
    ops_.images().max_pool_backward_input(shape_, places.ids(), dy.floats(), dx.floats());
    return dx;
  }

 private:
  PoolShape shape_;
  std::size_t words_in_, words_out_;
};

/// Keeps nothing: its gradient does not depend on the input.
class AveragePoolLayer final : public PlainLeafLayer {
 public:
  AveragePoolLayer(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, 0),
        is_global_(layer.kind == LayerKind::GlobalAveragePool),
        shape_{site.extent.rows(), layer.image, layer.window},
        channels_{site.extent.rows(), layer.image.channels, layer.image.pixels()},
        words_in_(site.extent.words(layer.in)),
        words_out_(site.extent.words(layer.out)) {}

  Buffer forward_now(Buffer x, Saved&) override {
    Buffer y = ops_.take(words_out_);
    if (is_global_) {
      ops_.images().global_average_pool_forward(channels_, x.floats(), y.floats());
    } else {
      ops_.images().average_pool_forward(shape_, x.floats(), y.floats());
    }
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved&, bool wanted) override {
    if (!wanted) return {};
    Buffer dx = ops_.take(words_in_);
    if (is_global_) {
      ops_.images().global_average_pool_backward_input(channels_, dy.floats(), dx.floats());
    } else {
      ops_.images().average_pool_backward_input(shape_, dy.floats(), dx.floats());
    }
    return dx;
  }

 private:
  bool is_global_;
  PoolShape shape_;
  ChannelShape channels_;
  std::size_t words_in_, words_out_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_conv2d(const Layer& layer, const LayerSite& site) {
  return std::make_unique<ConvLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_batch_norm(const Layer& layer, const LayerSite& site) {
  return std::make_unique<BatchNormLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_max_pool(const Layer& layer, const LayerSite& site) {
  return std::make_unique<MaxPoolLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_average_pool(const Layer& layer, const LayerSite& site) {
  return std::make_unique<AveragePoolLayer>(layer, site);
}

}  // namespace pipewright::exec
