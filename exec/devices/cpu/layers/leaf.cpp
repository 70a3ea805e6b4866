#include "exec/devices/cpu/layers/leaf.hpp"

#include <utility>

#include "exec/devices/cpu/layers/tied_head.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cpu {
namespace {

class LinearLayer final : public TrainableLayer {
 public:
  LinearLayer(const Layer& layer, const LayerSite& site)
      : extent_(site.extent),
        pool_(*site.pool),
        in_(site.width),
        out_(layer.out),
        projection_(site, "", site.width, layer.out, layer.bias) {}

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = pool_.take(extent_.words(out_));
    projection_.forward(extent_.rows(), x.floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = pool_.take(extent_.words(in_));
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
  BufferPool& pool_;
  int in_, out_;
  Projection projection_;
};

/// Relu and gelu: no parameters, one kept array (relu its output, gelu its input), done after I.
class ActivationLayer final : public TrainableLayer {
 public:
  ActivationLayer(const LayerSite& site, LayerKind kind)
      : words_(site.extent.words(site.width)), pool_(*site.pool), kind_(kind) {}

  Saved new_saved() const override { return {std::vector<Buffer>(1), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = pool_.take(words_);
    if (kind_ == LayerKind::Relu) {
      relu_forward(words_, x.floats(), y.floats());
      saved.buffers[0] = y;
    } else {
      gelu_forward(words_, x.floats(), y.floats());
      saved.buffers[0] = std::move(x);
    }
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer kept = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = dy.is_shared() ? pool_.take(words_) : dy;
    if (kind_ == LayerKind::Relu) {
      relu_backward_input(words_, kept.floats(), dy.floats(), dx.floats());
    } else {
      gelu_backward_input(words_, kept.floats(), dy.floats(), dx.floats());
    }
    return dx;
  }

  void backward_weight(Saved&) override {}
  void collect(std::vector<Parameter*>&) override {}

 private:
  std::size_t words_;
  BufferPool& pool_;
  LayerKind kind_;
};

class LayerNormLayer final : public TrainableLayer {
 public:
  explicit LayerNormLayer(const LayerSite& site)
      : shape_{site.extent.rows(), site.width},
        words_(site.extent.words(site.width)),
        pool_(*site.pool),
        scale_(constant_parameter(site, "scale", static_cast<std::size_t>(site.width), 1.0F)),
        shift_(constant_parameter(site, "shift", static_cast<std::size_t>(site.width), 0.0F)) {}

  Saved new_saved() const override { return {std::vector<Buffer>(4), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = pool_.take(words_);
    saved.buffers[kMean] = pool_.take(static_cast<std::size_t>(shape_.rows));
    saved.buffers[kInverse] = pool_.take(static_cast<std::size_t>(shape_.rows));
    layer_norm_forward(shape_, x.floats(), scale_.value.data(), shift_.value.data(), y.floats(),
                       saved.buffers[kMean].floats(), saved.buffers[kInverse].floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = pool_.take(words_);
      layer_norm_backward_input(shape_, saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
                                saved.buffers[kInverse].floats(), scale_.value.data(), dy.floats(),
                                dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    layer_norm_backward_weight(shape_, saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
                               saved.buffers[kInverse].floats(), saved.buffers[kDy].floats(),
                               scale_.gradient.data(), shift_.gradient.data());
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
  BufferPool& pool_;
  Parameter scale_, shift_;
};

class EmbeddingLayer final : public TrainableLayer {
 public:
  EmbeddingLayer(const Layer& layer, const LayerSite& site)
      : shape_{site.extent.rows(), site.extent.sequence, layer.out},
        words_(site.extent.words(layer.out)),
        pool_(*site.pool),
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
    Buffer y = pool_.take(words_);
    embedding_forward(shape_, x.ids(), tokens_.value.data(),
                      has_positions() ? positions_.value.data() : nullptr, y.floats());
    saved.buffers[kIds] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool) override {
    saved.buffers[kDy] = std::move(dy);
    return {};
  }

  void backward_weight(Saved& saved) override {
    embedding_backward_weight(shape_, saved.buffers[kIds].ids(), saved.buffers[kDy].floats(),
                              tokens_.gradient.data(),
                              has_positions() ? positions_.gradient.data() : nullptr);
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
  BufferPool& pool_;
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

}  // namespace pipewright::exec::cpu
