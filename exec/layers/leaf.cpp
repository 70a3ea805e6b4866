#include "exec/layers/leaf.hpp"

#include <utility>

#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/projection.hpp"
#include "exec/layers/tensor_ops.hpp"
#include "exec/layers/tied_head.hpp"

namespace pipewright::exec {
namespace {

class LinearLayer final : public LeafLayer {
 public:
  LinearLayer(const Layer& layer, const LayerSite& site)
      : LeafLayer(layer, site, kSlots),
        projection_(site, site.width, layer.out, weights_[0], layer.bias ? &weights_[1] : nullptr,
                    {site.split, site.columns}) {}

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(extent_.words(projection_.out()));
    co_await projection_.forward(extent_.rows(), x.floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(extent_.words(projection_.in()));
      co_await projection_.backward_input(extent_.rows(), dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    co_return dx;
  }

 private:
  enum Slot { kX, kDy, kSlots };

  void add_gradients(Saved& saved) override {
    projection_.backward_weight(extent_.rows(), saved.buffers[kX].floats(),
                                saved.buffers[kDy].floats());
  }

  Projection projection_;
};

/// Relu and gelu: no parameters, one kept array (relu its output, gelu its input), done after I.
class ActivationLayer final : public PlainLeafLayer {
 public:
  ActivationLayer(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, 1), width_(site.own_width()), kind_(layer.kind) {}

  Buffer forward_now(Buffer x, Saved& saved) override {
    const std::size_t n = words(saved, width_);
    Buffer y = ops_.take(n);
    if (kind_ == LayerKind::Relu) {
      ops_.relu_forward(n, x.floats(), y.floats());
      saved.buffers[0] = y;
    } else {
      ops_.gelu_forward(n, x.floats(), y.floats());
      saved.buffers[0] = std::move(x);
    }
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer kept = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    const std::size_t n = words(saved, width_);
    Buffer dx = dy.is_shared() ? ops_.take(n) : dy;
    if (kind_ == LayerKind::Relu) {
      ops_.relu_backward_input(n, kept.floats(), dy.floats(), dx.floats());
    } else {
      ops_.gelu_backward_input(n, kept.floats(), dy.floats(), dx.floats());
    }
    return dx;
  }

 private:
  int width_;
  LayerKind kind_;
};

class LayerNormLayer final : public KeepingLayer {
 public:
  LayerNormLayer(const Layer& layer, const LayerSite& site)
      : KeepingLayer(layer, site, site.width, site.width, 2),
        shape_{site.extent.rows(), site.width} {}

 private:
  enum Slot { kMean = kFirstOwn, kInverse };

  Parameter& scale() { return weights_[0]; }
  Parameter& shift() { return weights_[1]; }

  void compute(const Buffer& x, Buffer& y, Saved& saved) override {
    saved.buffers[kMean] = ops_.take(extent_.words(1));
    saved.buffers[kInverse] = ops_.take(extent_.words(1));
    ops_.layer_norm_forward(shape_, x.floats(), scale().weights(), shift().weights(), y.floats(),
                            saved.buffers[kMean].floats(), saved.buffers[kInverse].floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) override {
    ops_.layer_norm_backward_input(shape_, saved.buffers[kX].floats(),
                                   saved.buffers[kMean].floats(), saved.buffers[kInverse].floats(),
                                   scale().weights(), dy.floats(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    ops_.layer_norm_backward_weight(shape_, saved.buffers[kX].floats(),
                                    saved.buffers[kMean].floats(), saved.buffers[kInverse].floats(),
                                    saved.buffers[kDy].floats(), scale().gradients(),
                                    shift().gradients());
  }

  NormShape shape_;
};

class RmsNormLayer final : public KeepingLayer {
 public:
  RmsNormLayer(const Layer& layer, const LayerSite& site)
      : KeepingLayer(layer, site, site.width, site.width, 1),
        shape_{site.extent.rows(), site.width} {}

 private:
  enum Slot { kInverse = kFirstOwn };

  Parameter& scale() { return weights_[0]; }

  void compute(const Buffer& x, Buffer& y, Saved& saved) override {
    saved.buffers[kInverse] = ops_.take(extent_.words(1));
    ops_.llama().rms_norm_forward(shape_, x.floats(), scale().weights(), y.floats(),
                                  saved.buffers[kInverse].floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) override {
    ops_.llama().rms_norm_backward_input(shape_, saved.buffers[kX].floats(),
                                         saved.buffers[kInverse].floats(), scale().weights(),
                                         dy.floats(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    ops_.llama().rms_norm_backward_weight(shape_, saved.buffers[kX].floats(),
                                          saved.buffers[kInverse].floats(),
                                          saved.buffers[kDy].floats(), scale().gradients());
  }

  NormShape shape_;
};

/// No parameters; keeps its input until I.
class SwigluLayer final : public PlainLeafLayer {
 public:
  SwigluLayer(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, 1), width_(site.own_width() / 2) {}

  Buffer forward_now(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words(saved, width_));
    ops_.llama().swiglu_forward(rows(saved), width_, x.floats(), y.floats());
    saved.buffers[0] = std::move(x);
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer x = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = ops_.take(words(saved, 2 * width_));
    ops_.llama().swiglu_backward_input(rows(saved), width_, x.floats(), dy.floats(), dx.floats());
    return dx;
  }

 private:
  int width_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_linear(const Layer& layer, const LayerSite& site) {
  if (layer.tied) return make_tied_linear(layer, site);
  return std::make_unique<LinearLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_activation(const Layer& layer, const LayerSite& site) {
  return std::make_unique<ActivationLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_rms_norm(const Layer& layer, const LayerSite& site) {
  return std::make_unique<RmsNormLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_swiglu(const Layer& layer, const LayerSite& site) {
  return std::make_unique<SwigluLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_layer_norm(const Layer& layer, const LayerSite& site) {
  return std::make_unique<LayerNormLayer>(layer, site);
}

}  // namespace pipewright::exec
