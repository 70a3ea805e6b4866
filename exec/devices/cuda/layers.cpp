// The layers but attention, as leaf.cpp and layers.cpp in exec/devices/cpu/layers/ have them: the
// same arrays are kept, and given back, at the same moments.
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cuda/layer.hpp"

namespace pipewright::exec::cuda {
namespace {

pipewright_cuda_gemm one_product(int m, int n, int k, const float* a, int a_stride,
                                 bool a_transposed, const float* b, int b_stride, bool b_transposed,
                                 float beta, float* c) {
  pipewright_cuda_gemm product{};
  product.m = m;
  product.n = n;
  product.k = k;
  product.outer = product.inner = 1;
  product.alpha = 1.0F;
  product.beta = beta;
  product.a = {a, a_stride, a_transposed ? 1 : 0, 0, 0};
  product.b = {b, b_stride, b_transposed ? 1 : 0, 0, 0};
  product.c = c;
  product.c_stride = n;
  return product;
}

class LinearLayer final : public DeviceLayer {
 public:
  LinearLayer(const Layer& layer, const DeviceSite& site)
      : extent_(site.extent),
        memory_(site.queue->memory()),
        in_(site.width),
        out_(layer.out),
        projection_(site, "", site.width, layer.out, layer.bias) {}

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = memory_.take_floats(extent_.words(out_));
    projection_.forward(extent_.rows(), x.floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = memory_.take_floats(extent_.words(in_));
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

 private:
  enum Slot { kX, kDy };

  Extent extent_;
  Pool& memory_;
  int in_, out_;
  DeviceProjection projection_;
};

/// logits = x · tableᵀ: our F is the I of the layer from vocabulary to width whose weights the
/// table is, and our I its F (exec/devices/cpu/layers/tied_head.cpp).
class TiedLinear final : public DeviceLayer {
 public:
  TiedLinear(const Layer& layer, const DeviceSite& site)
      : extent_(site.extent),
        width_(site.width),
        vocabulary_(layer.out),
        queue_(*site.queue),
        table_(site.parameters->at(site.table)) {}

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = queue_.memory().take_floats(extent_.words(vocabulary_));
    queue_.multiply(one_product(extent_.rows(), vocabulary_, width_, x.floats(), width_, false,
                                table_.value, width_, true, 0.0F, y.floats()));
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = queue_.memory().take_floats(extent_.words(width_));
      queue_.multiply(one_product(extent_.rows(), width_, vocabulary_, dy.floats(), vocabulary_,
                                  false, table_.value, width_, false, 0.0F, dx.floats()));
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    queue_.multiply(one_product(vocabulary_, width_, extent_.rows(), saved.buffers[kDy].floats(),
                                vocabulary_, true, saved.buffers[kX].floats(), width_, false, 1.0F,
                                table_.gradient));
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

 private:
  enum Slot { kX, kDy };

  Extent extent_;
  int width_, vocabulary_;
  Queue& queue_;
  const DeviceParameter& table_;
};

class ActivationLayer final : public DeviceLayer {
 public:
  ActivationLayer(const DeviceSite& site, LayerKind kind)
      : words_(site.extent.words(site.width)), queue_(*site.queue), kind_(kind) {}

  Saved new_saved() const override { return {std::vector<Buffer>(1), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = queue_.memory().take_floats(words_);
    const float* from = x.floats();
    if (kind_ == LayerKind::Relu) {
      queue_.run(queue_.kernels().relu_forward, words_, from, y.floats());
      saved.buffers[0] = y;
    } else {
      queue_.run(queue_.kernels().gelu_forward, words_, from, y.floats());
      saved.buffers[0] = std::move(x);
    }
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer kept = std::exchange(saved.buffers[0], Buffer());
    if (!wanted) return {};
    Buffer dx = dy.is_shared() ? queue_.memory().take_floats(words_) : dy;
    const auto kernel = kind_ == LayerKind::Relu ? queue_.kernels().relu_backward_input
                                                 : queue_.kernels().gelu_backward_input;
    queue_.run(kernel, words_, kept.floats(), dy.floats(), dx.floats());
    return dx;
  }

  void backward_weight(Saved&) override {}

 private:
  std::size_t words_;
  Queue& queue_;
  LayerKind kind_;
};

class LayerNormLayer final : public DeviceLayer {
 public:
  explicit LayerNormLayer(const DeviceSite& site)
      : rows_(site.extent.rows()),
        width_(site.width),
        queue_(*site.queue),
        scale_(site.parameter("scale")),
        shift_(site.parameter("shift")) {}

  Saved new_saved() const override { return {std::vector<Buffer>(4), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Pool& memory = queue_.memory();
    Buffer y = memory.take_floats(words());
    saved.buffers[kMean] = memory.take_floats(static_cast<std::size_t>(rows_));
    saved.buffers[kInverse] = memory.take_floats(static_cast<std::size_t>(rows_));
    queue_.run(queue_.kernels().layer_norm_forward, rows_, width_, x.floats(), scale_.value,
               shift_.value, y.floats(), saved.buffers[kMean].floats(),
               saved.buffers[kInverse].floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = queue_.memory().take_floats(words());
      queue_.run(queue_.kernels().layer_norm_backward_input, rows_, width_,
                 saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
                 saved.buffers[kInverse].floats(), scale_.value, dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    queue_.run(queue_.kernels().layer_norm_backward_weight, rows_, width_,
               saved.buffers[kX].floats(), saved.buffers[kMean].floats(),
               saved.buffers[kInverse].floats(), saved.buffers[kDy].floats(), scale_.gradient,
               shift_.gradient);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

 private:
  enum Slot { kX, kMean, kInverse, kDy };

  std::size_t words() const {
    return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(width_);
  }

  int rows_, width_;
  Queue& queue_;
  const DeviceParameter &scale_, &shift_;
};

class EmbeddingLayer final : public DeviceLayer {
 public:
  EmbeddingLayer(const Layer& layer, const DeviceSite& site)
      : extent_(site.extent),
        width_(layer.out),
        queue_(*site.queue),
        tokens_(site.parameter("tokens")),
        positions_(layer.positions > 0 ? &site.parameter("positions") : nullptr) {}

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = queue_.memory().take_floats(extent_.words(width_));
    const float* positions = positions_ == nullptr ? nullptr : positions_->value;
    queue_.run(queue_.kernels().embedding_forward, extent_.rows(), extent_.sequence, width_,
               x.ids(), tokens_.value, positions, y.floats());
    saved.buffers[kIds] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool) override {
    saved.buffers[kDy] = std::move(dy);
    return {};
  }

  void backward_weight(Saved& saved) override {
    const auto rows = static_cast<std::size_t>(extent_.rows());
    const Buffer links = queue_.memory().take(2 * rows * sizeof(std::int32_t));
    queue_.run(queue_.kernels().embedding_backward_weight, extent_.rows(), extent_.sequence, width_,
               saved.buffers[kIds].ids(), saved.buffers[kDy].floats(), links.ids(),
               tokens_.gradient, positions_ == nullptr ? nullptr : positions_->gradient);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

 private:
  enum Slot { kIds, kDy };

  Extent extent_;
  int width_;
  Queue& queue_;
  const DeviceParameter& tokens_;
  const DeviceParameter* positions_;
};

// --- Layers that hold others ---

/// Layers one after another.
class Chain {
 public:
  explicit Chain(std::vector<std::unique_ptr<DeviceLayer>> layers) : layers_(std::move(layers)) {}
  Chain(const std::vector<Layer>& layers, DeviceSite site) {
    const std::string outer = site.path;
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      const Layer& inner = layers[static_cast<std::size_t>(i)];
      site.path = layer_path(outer, i, inner);
      layers_.push_back(make_device_layer(inner, site));
      site.width = width_behind(inner, site.width, site.path);
    }
  }

  Saved new_saved() const {
    Saved saved;
    for (const auto& layer : layers_) saved.inner.push_back(layer->new_saved());
    return saved;
  }
  Buffer forward(Buffer x, Saved& saved) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->forward(std::move(x), saved.inner[i]);
    return x;
  }
  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) {
    for (std::size_t i = layers_.size(); i-- > 0;)
      dy = layers_[i]->backward_input(std::move(dy), saved.inner[i], wanted || i > 0);
    return dy;
  }
  void backward_weight(Saved& saved) {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i]->backward_weight(saved.inner[i]);
  }
  const std::vector<std::unique_ptr<DeviceLayer>>& layers() const { return layers_; }

 private:
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
};

class SequentialLayer final : public DeviceLayer {
 public:
  SequentialLayer(const Layer& layer, const DeviceSite& site) : chain_(layer.inner, site) {}

  Saved new_saved() const override { return chain_.new_saved(); }
  Buffer forward(Buffer x, Saved& saved) override { return chain_.forward(std::move(x), saved); }
  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    return chain_.backward_input(std::move(dy), saved, wanted);
  }
  void backward_weight(Saved& saved) override { chain_.backward_weight(saved); }

 private:
  Chain chain_;
};

class ResidualLayer final : public DeviceLayer {
 public:
  ResidualLayer(const Layer& layer, const DeviceSite& site)
      : words_in_(site.extent.words(site.width)),
        words_out_(site.extent.words(width_behind(layer, site.width, site.path))),
        queue_(*site.queue),
        inner_(layer.inner, site),
        shortcut_(layer.shortcut, site_of_shortcut(site)) {}

  Saved new_saved() const override {
    Saved saved;
    saved.inner.push_back(inner_.new_saved());
    saved.inner.push_back(shortcut_.new_saved());
    return saved;
  }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = writable(inner_.forward(x, saved.inner[0]), words_out_);
    const Buffer added = shortcut_.forward(std::move(x), saved.inner[1]);
    queue_.run(queue_.kernels().add_to, words_out_, added.floats(), y.floats());
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx = inner_.backward_input(dy, saved.inner[0], wanted);
    const Buffer added = shortcut_.backward_input(std::move(dy), saved.inner[1], wanted);
    if (!wanted) return {};
    dx = writable(std::move(dx), words_in_);
    queue_.run(queue_.kernels().add_to, words_in_, added.floats(), dx.floats());
    return dx;
  }

  void backward_weight(Saved& saved) override {
    inner_.backward_weight(saved.inner[0]);
    shortcut_.backward_weight(saved.inner[1]);
  }

 private:
  static DeviceSite site_of_shortcut(DeviceSite site) {
    site.path += "/shortcut";
    return site;
  }

  /// The buffer itself, or a copy if somebody else reads it.
  Buffer writable(Buffer buffer, std::size_t words) {
    if (!buffer.is_shared()) return buffer;
    Buffer copy = queue_.memory().take_floats(words);
    queue_.copy(copy.at(), buffer.at(), words * sizeof(float));
    return copy;
  }

  std::size_t words_in_, words_out_;
  Queue& queue_;
  Chain inner_, shortcut_;
};

class RecomputedLayers final : public DeviceLayer {
 public:
  explicit RecomputedLayers(std::vector<std::unique_ptr<DeviceLayer>> layers)
      : chain_(std::move(layers)) {}

  Saved new_saved() const override {
    Saved saved = chain_.new_saved();
    saved.buffers.resize(1);
    return saved;
  }
  Buffer forward(Buffer x, Saved& saved) override {
    saved.buffers[0] = x;
    for (std::size_t i = 0; i < chain_.layers().size(); ++i) {
      x = chain_.layers()[i]->forward(std::move(x), saved.inner[i]);
      let_go(saved.inner[i]);
    }
    return x;
  }
  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    chain_.forward(std::exchange(saved.buffers[0], Buffer()), saved);
    return chain_.backward_input(std::move(dy), saved, wanted);
  }
  void backward_weight(Saved& saved) override { chain_.backward_weight(saved); }

 private:
  Chain chain_;
};

void require_layer(const Layer& layer, const std::string& path) {
  switch (layer.kind) {
    case LayerKind::Linear:
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::LayerNorm:
    case LayerKind::CausalSelfAttention:
    case LayerKind::Embedding:
      return;
    case LayerKind::Residual:
    case LayerKind::Sequential:
      break;
    default:
      throw InputError("layer \"" + path + "\": layers of kind " +
                       std::string(to_string(layer.kind)) +
                       " are not trained on GPUs yet; use --device cpu");
  }
  for (int i = 0; i < static_cast<int>(layer.inner.size()); ++i) {
    const Layer& inner = layer.inner[static_cast<std::size_t>(i)];
    require_layer(inner, layer_path(path, i, inner));
  }
  for (int i = 0; i < static_cast<int>(layer.shortcut.size()); ++i) {
    const Layer& inner = layer.shortcut[static_cast<std::size_t>(i)];
    require_layer(inner, layer_path(path + "/shortcut", i, inner));
  }
}

}  // namespace

void let_go(Saved& saved) {
  for (Buffer& buffer : saved.buffers) buffer.reset();
  for (Saved& inner : saved.inner) let_go(inner);
}

void require_layers(const Model& model) {
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const Layer& layer = model.layers[static_cast<std::size_t>(i)];
    require_layer(layer, layer_path("", i, layer));
  }
}

DeviceProjection::DeviceProjection(const DeviceSite& site, const std::string& name, int in, int out,
                                   bool bias)
    : queue_(*site.queue),
      in_(in),
      out_(out),
      weight_(&site.parameter(name + "weight")),
      bias_(bias ? &site.parameter(name + "bias") : nullptr) {}

void DeviceProjection::forward(int rows, const float* x, float* y) const {
  queue_.multiply(
      one_product(rows, out_, in_, x, in_, false, weight_->value, out_, false, 0.0F, y));
  if (bias_ != nullptr) queue_.run(queue_.kernels().bias_forward, rows, out_, bias_->value, y);
}

void DeviceProjection::backward_input(int rows, const float* dy, float* dx) const {
  queue_.multiply(
      one_product(rows, in_, out_, dy, out_, false, weight_->value, out_, true, 0.0F, dx));
}

void DeviceProjection::backward_weight(int rows, const float* x, const float* dy) const {
  queue_.multiply(
      one_product(in_, out_, rows, x, in_, true, dy, out_, false, 1.0F, weight_->gradient));
  if (bias_ != nullptr)
    queue_.run(queue_.kernels().bias_backward_weight, rows, out_, dy, bias_->gradient);
}

std::unique_ptr<DeviceLayer> make_device_layer(const Layer& layer, const DeviceSite& site) {
  switch (layer.kind) {
    case LayerKind::Linear:
      if (layer.tied) return std::make_unique<TiedLinear>(layer, site);
      return std::make_unique<LinearLayer>(layer, site);
    case LayerKind::Relu:
    case LayerKind::Gelu:
      return std::make_unique<ActivationLayer>(site, layer.kind);
    case LayerKind::LayerNorm:
      return std::make_unique<LayerNormLayer>(site);
    case LayerKind::CausalSelfAttention:
      return make_device_attention(layer, site);
    case LayerKind::Embedding:
      return std::make_unique<EmbeddingLayer>(layer, site);
    case LayerKind::Residual:
      return std::make_unique<ResidualLayer>(layer, site);
    case LayerKind::Sequential:
      return std::make_unique<SequentialLayer>(layer, site);
    default:
      throw Bug("a layer that no GPU trains came through");
  }
}

std::unique_ptr<DeviceLayer> make_device_recomputed(
    std::vector<std::unique_ptr<DeviceLayer>> layers) {
  return std::make_unique<RecomputedLayers>(std::move(layers));
}

}  // namespace pipewright::exec::cuda
