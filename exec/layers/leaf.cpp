#include "exec/layers/leaf.hpp"

#include <utility>

#include "exec/layers/parameters.hpp"
#include "exec/layers/projection.hpp"
#include "exec/layers/tensor_ops.hpp"
#include "exec/layers/tied_head.hpp"

namespace pipewright::exec {
namespace {

class LinearLayer final : public TrainableLayer {
 public:
  LinearLayer(const Layer& layer, const LayerSite& site)
      : extent_(site.extent),
        ops_(*site.ops),
        in_(site.width),
        out_(layer.out),
        projection_(site, "", site.width, layer.out, layer.bias) {}

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(extent_.words(out_));
    projection_.forward(extent_.rows(), x.floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(extent_.words(in_));
      projection_.backward_input(extent_.rows(), dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    projection_.backward_weight(extent_.rows(), saved.buffers[kX].floats(),
                                saved.buffers[kDy].floats());
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override { projection_.collect(parameters); }

 private:
  enum Slot { kX, kDy };

  Extent extent_;
  TensorOps& ops_;
  int in_, out_;
  Projection projection_;
};

/// Relu and gelu: no parameters, one kept array (relu its output, gelu its input), done after I.
class ActivationLayer final : public TrainableLayer {
 public:
  ActivationLayer(const LayerSite& site, LayerKind kind)
      : words_(site.extent.words(site.width)), ops_(*site.ops), kind_(kind) {}

  Saved new_saved() const override { return {std::vector<Buffer>(1), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    if (kind_ == LayerKind::Relu) {
      ops_.relu_forward(words_, x.floats(), y.floats());
      saved.buffers[0] = y;
    } else {
      ops_.gelu_forward(words_, x.floats(), y.floats());
      saved.buffers[0] = std::move(x);
    }
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer kept = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = dy.is_shared() ? ops_.take(words_) : dy;
    if (kind_ == LayerKind::Relu) {
      ops_.relu_backward_input(words_, kept.floats(), dy.floats(), dx.floats());
    } else {
      ops_.gelu_backward_input(words_, kept.floats(), dy.floats(), dx.floats());
    }
    return dx;
  }

  void backward_weight(Saved&) override {}
  void collect(std::vector<Parameter*>&) override {}

 private:
  std::size_t words_;
  TensorOps& ops_;
  LayerKind kind_;
};

class LayerNormLayer final : public TrainableLayer {
 public:
  explicit LayerNormLayer(const LayerSite& site)
      : shape_{site.extent.rows(), site.width},
        words_(site.extent.words(site.width)),
        ops_(*site.ops),
        scale_(constant_parameter(site, "scale", static_cast<std::size_t>(site.width), 1.0F)),
        shift_(constant_parameter(site, "shift", static_cast<std::size_t>(site.width), 0.0F)) {}

  Saved new_saved() const override { return {std::vector<Buffer>(4), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    saved.buffers[kMean] = ops_.take(static_cast<std::size_t>(shape_.rows));
    saved.buffers[kInverse] = ops_.take(static_cast<std::size_t>(shape_.rows));
    ops_.layer_norm_forward(shape_, x.floats(), scale_.weights(), shift_.weights(), y.floats(),
                            saved.buffers[kMean].floats(), saved.buffers[kInverse].floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(words_);
      ops_.layer_norm_backward_input(
          shape_, saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
          saved.buffers[kInverse].floats(), scale_.weights(), dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    ops_.layer_norm_backward_weight(shape_, saved.buffers[kX].floats(),
                                    saved.buffers[kMean].floats(), saved.buffers[kInverse].floats(),
                                    saved.buffers[kDy].floats(), scale_.gradients(),
                                    shift_.gradients());
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override {
    parameters.push_back(&scale_);
    parameters.push_back(&shift_);
  }

 private:
  enum Slot { kX, kMean, kInverse, kDy };

  NormShape shape_;
  std::size_t words_;
  TensorOps& ops_;
  Parameter scale_, shift_;
};

class EmbeddingLayer final : public TrainableLayer {
 public:
  EmbeddingLayer(const Layer& layer, const LayerSite& site)
      : shape_{site.extent.rows(), site.extent.sequence, layer.out},
        words_(site.extent.words(layer.out)),
        ops_(*site.ops),
        tokens_(token_table(site, layer.vocabulary, layer.out)) {
    if (layer.positions > 0) {
      const auto size =
          static_cast<std::size_t>(layer.positions) * static_cast<std::size_t>(layer.out);
      positions_ = random_parameter(site, "positions", size, kEmbeddingBound);
    }
    if (site.shared_table != nullptr) site.shared_table->parameter = &tokens_;
  }

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    ops_.embedding_forward(shape_, x.ids(), tokens_.weights(),
                           has_positions() ? positions_.weights() : nullptr, y.floats());
    saved.buffers[kIds] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool) override {
    saved.buffers[kDy] = std::move(dy);
    return {};
  }

  void backward_weight(Saved& saved) override {
    ops_.embedding_backward_weight(shape_, saved.buffers[kIds].ids(), saved.buffers[kDy].floats(),
                                   tokens_.gradients(),
                                   has_positions() ? positions_.gradients() : nullptr);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override {
    parameters.push_back(&tokens_);
    if (has_positions()) parameters.push_back(&positions_);
  }

 private:
  enum Slot { kIds, kDy };

  bool has_positions() const { return !positions_.value.empty(); }

  EmbeddingShape shape_;
  std::size_t words_;
  TensorOps& ops_;
  Parameter tokens_, positions_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_linear(const Layer& layer, const LayerSite& site) {
  if (layer.tied) return make_tied_linear(layer, site);
  return std::make_unique<LinearLayer>(layer, site);
}

std::unique_ptr<TrainableLayer> make_relu(const LayerSite& site) {
  return std::make_unique<ActivationLayer>(site, LayerKind::Relu);
}

std::unique_ptr<TrainableLayer> make_gelu(const LayerSite& site) {
  return std::make_unique<ActivationLayer>(site, LayerKind::Gelu);
}

std::unique_ptr<TrainableLayer> make_layer_norm(const LayerSite& site) {
  return std::make_unique<LayerNormLayer>(site);
}

std::unique_ptr<TrainableLayer> make_embedding(const Layer& layer, const LayerSite& site) {
  return std::make_unique<EmbeddingLayer>(layer, site);
}

}  // namespace pipewright::exec
