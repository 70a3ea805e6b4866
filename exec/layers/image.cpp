#include "exec/layers/image.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

class ConvLayer final : public TrainableLayer {
 public:
  ConvLayer(const Layer& layer, const LayerSite& site)
      : shape_{site.extent.rows(), layer.image, layer.image_out.channels, layer.window,
               layer.groups},
        channels_{site.extent.rows(), layer.image_out.channels, layer.image_out.pixels()},
        words_in_(site.extent.words(layer.in)),
        words_out_(site.extent.words(layer.out)),
        ops_(*site.ops) {
    // He's bound keeps the size of what goes through relu and the next convolution.
    const auto patch = static_cast<std::size_t>(shape_.patch());
    const float bound = std::sqrt(6.0F / static_cast<float>(patch));
    const auto filters = static_cast<std::size_t>(shape_.filters);
    weight_ = random_parameter(site, "weight", filters * patch, bound);
    if (layer.bias) bias_ = constant_parameter(site, "bias", filters, 0.0F);
  }

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_out_);
    ops_.images().conv2d_forward(shape_, x.floats(), weight_.weights(), y.floats());
    if (has_bias()) ops_.images().channel_bias_forward(channels_, bias_.weights(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(words_in_);
      ops_.images().conv2d_backward_input(shape_, dy.floats(), weight_.weights(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    const float* const dy = saved.buffers[kDy].floats();
    ops_.images().conv2d_backward_weight(shape_, saved.buffers[kX].floats(), dy,
                                         weight_.gradients());
    if (has_bias()) ops_.images().channel_bias_backward_weight(channels_, dy, bias_.gradients());
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override {
    parameters.push_back(&weight_);
    if (has_bias()) parameters.push_back(&bias_);
  }

 private:
  enum Slot { kX, kDy };

  bool has_bias() const { return !bias_.value.empty(); }

  ConvShape shape_;
  ChannelShape channels_;
  std::size_t words_in_, words_out_;
  TensorOps& ops_;
  Parameter weight_, bias_;  // bias_ is empty if there is none
};

/// How far an update moves the running statistics.
constexpr float kMomentum = 0.1F;

Parameter statistic(const LayerSite& site, const std::string& name, std::size_t size, float value) {
  Parameter parameter = constant_parameter(site, name, size, value);
  parameter.is_statistic = true;
  return parameter;
}

class BatchNormLayer final : public TrainableLayer {
 public:
  BatchNormLayer(const Layer& layer, const LayerSite& site)
      : shape_{site.extent.rows(), layer.image.channels, layer.image.pixels()},
        words_(site.extent.words(layer.in)),
        size_(static_cast<std::size_t>(layer.image.channels)),
        ops_(*site.ops),
        scale_(constant_parameter(site, "scale", size_, 1.0F)),
        shift_(constant_parameter(site, "shift", size_, 0.0F)),
        mean_(statistic(site, "running_mean", size_, 0.0F)),
        variance_(statistic(site, "running_variance", size_, 1.0F)),
        updates_(statistic(site, "updates", 1, 0.0F)) {}

  Saved new_saved() const override { return {std::vector<Buffer>(4), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    if (is_evaluating_) {
      normalise(x, mean_.weights(), variance_.weights(), y);
      return y;
    }
    const Buffer mean = saved.buffers[kMean] = ops_.take(size_);
    const Buffer variance = saved.buffers[kVariance] = ops_.take(size_);
    ops_.images().batch_statistics(shape_, x.floats(), mean.floats(), variance.floats());
    normalise(x, mean.floats(), variance.floats(), y);
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) dx = dy.is_shared() ? ops_.take(words_) : dy;
    Buffer sums = ops_.take(2 * size_);
    ops_.images().batch_norm_backward_input(
        shape_, saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
        saved.buffers[kVariance].floats(), scale_.weights(), dy.floats(),
        wanted ? dx.floats() : nullptr, sums.floats(), sums.floats() + size_);
    saved.buffers[kX].reset();
    saved.buffers[kSums] = std::move(sums);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    add(saved.buffers[kSums].floats(), scale_);
    add(saved.buffers[kSums].floats() + size_, shift_);
    add(saved.buffers[kMean].floats(), mean_);
    // The variance of all, of which the micro-batch is a sample: divided by one less than its
    // number.
    const float count = static_cast<float>(shape_.images) * static_cast<float>(shape_.pixels);
    const float correction = count > 1 ? count / (count - 1) : 1.0F;
    const float* const variance = saved.buffers[kVariance].floats();
    for (std::size_t c = 0; c < size_; ++c) variance_.gradient[c] += variance[c] * correction;
    updates_.gradient[0] += 1;
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (Parameter* p : {&scale_, &shift_, &mean_, &variance_, &updates_}) parameters.push_back(p);
  }

  void update_statistics() override {
    const float micro_batches = updates_.gradient[0];
    if (micro_batches == 0) return;
    for (Parameter* p : {&mean_, &variance_}) {
      for (std::size_t c = 0; c < size_; ++c) {
        p->value[c] += kMomentum * (p->gradient[c] / micro_batches - p->value[c]);
      }
    }
    updates_.value[0] += 1;
  }

  void set_evaluating(bool evaluating) override { is_evaluating_ = evaluating; }

 private:
  enum Slot { kX, kMean, kVariance, kSums };

  void normalise(const Buffer& x, const float* mean, const float* variance, Buffer& y) const {
    ops_.images().batch_norm_forward(shape_, x.floats(), mean, variance, scale_.weights(),
                                     shift_.weights(), y.floats());
  }

  void add(const float* part, Parameter& parameter) const {
    for (std::size_t c = 0; c < size_; ++c) parameter.gradient[c] += part[c];
  }

  ChannelShape shape_;
  std::size_t words_, size_;
  TensorOps& ops_;
  Parameter scale_, shift_, mean_, variance_, updates_;
  bool is_evaluating_ = false;
};

class MaxPoolLayer final : public TrainableLayer {
 public:
  MaxPoolLayer(const Layer& layer, const LayerSite& site)
      : shape_{site.extent.rows(), layer.image, layer.window},
        words_in_(site.extent.words(layer.in)),
        words_out_(site.extent.words(layer.out)),
        ops_(*site.ops) {}

  Saved new_saved() const override { return {std::vector<Buffer>(1), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_out_);
    Buffer places = ops_.take(words_out_);
    ops_.images().max_pool_forward(shape_, x.floats(), y.floats(), places.ids());
    saved.buffers[0] = std::move(places);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer places = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = ops_.take(words_in_);
    ops_.images().max_pool_backward_input(shape_, places.ids(), dy.floats(), dx.floats());
    return dx;
  }

  void backward_weight(Saved&) override {}
  void collect(std::vector<Parameter*>&) override {}

 private:
  PoolShape shape_;
  std::size_t words_in_, words_out_;
  TensorOps& ops_;
};

/// Keeps nothing: its gradient does not depend on the input.
class AveragePoolLayer final : public TrainableLayer {
 public:
  AveragePoolLayer(const Layer& layer, const LayerSite& site)
      : is_global_(layer.kind == LayerKind::GlobalAveragePool),
        shape_{site.extent.rows(), layer.image, layer.window},
        channels_{site.extent.rows(), layer.image.channels, layer.image.pixels()},
        words_in_(site.extent.words(layer.in)),
        words_out_(site.extent.words(layer.out)),
        ops_(*site.ops) {}

  Saved new_saved() const override { return {}; }

  Buffer forward(Buffer x, Saved&) override {
    Buffer y = ops_.take(words_out_);
    if (is_global_) {
      ops_.images().global_average_pool_forward(channels_, x.floats(), y.floats());
    } else {
      ops_.images().average_pool_forward(shape_, x.floats(), y.floats());
    }
    return y;
  }

  Buffer backward_input(Buffer dy, Saved&, bool wanted) override {
    if (!wanted) return {};
    Buffer dx = ops_.take(words_in_);
    if (is_global_) {
      ops_.images().global_average_pool_backward_input(channels_, dy.floats(), dx.floats());
    } else {
      ops_.images().average_pool_backward_input(shape_, dy.floats(), dx.floats());
    }
    return dx;
  }

  void backward_weight(Saved&) override {}
  void collect(std::vector<Parameter*>&) override {}

 private:
  bool is_global_;
  PoolShape shape_;
  ChannelShape channels_;
  std::size_t words_in_, words_out_;
  TensorOps& ops_;
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
