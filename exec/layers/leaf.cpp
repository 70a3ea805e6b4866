#include "exec/layers/leaf.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/order/call.hpp"
#include "exec/layers/divided_rows.hpp"
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
        all_rows_(site.extent.rows()),
        projection_(site, site.width, layer.out, weights_[0], layer.bias ? &weights_[1] : nullptr,
                    {site.split, site.columns}) {}

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_of(projection_.rows_out(all_rows_), projection_.out()));
    co_await projection_.forward(all_rows_, x.floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(words_of(projection_.rows_in(all_rows_), projection_.in()));
      co_await projection_.backward_input(all_rows_, dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    co_return dx;
  }

  Task<void> gather_kept_rows(Saved& saved) override {
    return projection_.gather_kept_rows(all_rows_, saved.buffers[kX], saved.buffers[kDy]);
  }
  void add_rows(Saved& saved, const Range& rows) override {
    projection_.add_own_rows(rows, saved.buffers[kX].floats(), saved.buffers[kDy].floats());
  }

 private:
  enum Slot { kX, kDy, kSlots };

  Task<void> add_gradients_task(Saved& saved) override {
    return projection_.backward_weight(all_rows_, saved.buffers[kX].floats(),
                                       saved.buffers[kDy].floats());
  }

  const int all_rows_;
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

/// Whether a layer at the site has weights of which it sees this rank's rows alone; notes it.
bool mark_own_rows(const LayerSite& site, std::vector<Parameter>& weights) {
  const bool sees_own_rows = site.divides_rows || site.adds_rows_in_turns;
  for (Parameter& weight : weights) weight.sees_own_rows = sees_own_rows;
  return sees_own_rows;
}

/// All rows of what a norm keeps, of which it has this rank's own.
class KeptRows {
 public:
  explicit KeptRows(const LayerSite& site)
      : rows_(site), all_rows_(site.extent.rows()), name_(as_call_name(site.path) + "-kept-") {}

  /// `widths`: numbers a row of each buffer.
  Task<void> complete(Saved& saved, std::vector<int> widths) const {
    for (std::size_t i = 0; i < widths.size(); ++i)
      co_await rows_.complete(name_ + std::to_string(i), saved.buffers[i], all_rows_, widths[i]);
  }

 private:
  const DividedRows rows_;
  const int all_rows_;
  const std::string name_;  // of calls
};

/// Where a row begins.
std::size_t row_at(const Range& rows, int width) { return words_of(rows.begin, width); }

class LayerNormLayer final : public KeepingLayer {
 public:
  LayerNormLayer(const Layer& layer, const LayerSite& site)
      : KeepingLayer(layer, site, site.width, site.width, 2),
        shape_{extent_.rows(), site.width},
        kept_(site),
        sees_own_rows_(mark_own_rows(site, weights_)) {}

  Task<void> gather_kept_rows(Saved& saved) override {
    return kept_.complete(saved, {shape_.width, shape_.width, 1, 1});
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    if (sees_own_rows_) add(saved, rows, scale().of_own_rows, shift().of_own_rows);
  }

 private:
  enum Slot { kMean = kFirstOwn, kInverse };

  Parameter& scale() { return weights_[0]; }
  Parameter& shift() { return weights_[1]; }

  void compute(const Buffer& x, Buffer& y, Saved& saved) override {
    saved.buffers[kMean] = ops_.take_floats(extent_.words(1));
    saved.buffers[kInverse] = ops_.take_floats(extent_.words(1));
    ops_.layer_norm_forward(shape_, x.floats(), scale().weights(), shift().weights(), y.floats(),
                            saved.buffers[kMean].floats(), saved.buffers[kInverse].floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) override {
    ops_.layer_norm_backward_input(shape_, saved.buffers[kX].floats(),
                                   saved.buffers[kMean].floats(), saved.buffers[kInverse].floats(),
                                   scale().weights(), dy.floats(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    if (!sees_own_rows_) add(saved, {0, shape_.rows}, scale().gradients(), shift().gradients());
  }
  void add(const Saved& saved, const Range& rows, float* dscale, float* dshift) {
    const std::size_t at = row_at(rows, shape_.width);
    ops_.layer_norm_backward_weight(
        {static_cast<int>(rows.count), shape_.width}, saved.buffers[kX].floats() + at,
        saved.buffers[kMean].floats() + rows.begin, saved.buffers[kInverse].floats() + rows.begin,
        saved.buffers[kDy].floats() + at, dscale, dshift);
  }

  NormShape shape_;
  const KeptRows kept_;
  const bool sees_own_rows_;
};

class RmsNormLayer final : public KeepingLayer {
 public:
  RmsNormLayer(const Layer& layer, const LayerSite& site)
      : KeepingLayer(layer, site, site.width, site.width, 1),
        shape_{extent_.rows(), site.width},
        kept_(site),
        sees_own_rows_(mark_own_rows(site, weights_)) {}

  Task<void> gather_kept_rows(Saved& saved) override {
    return kept_.complete(saved, {shape_.width, shape_.width, 1});
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    if (sees_own_rows_) add(saved, rows, scale().of_own_rows);
  }

 private:
  enum Slot { kInverse = kFirstOwn };

  Parameter& scale() { return weights_[0]; }

  void compute(const Buffer& x, Buffer& y, Saved& saved) override {
    saved.buffers[kInverse] = ops_.take_floats(extent_.words(1));
    ops_.llama().rms_norm_forward(shape_, x.floats(), scale().weights(), y.floats(),
                                  saved.buffers[kInverse].floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) override {
    ops_.llama().rms_norm_backward_input(shape_, saved.buffers[kX].floats(),
                                         saved.buffers[kInverse].floats(), scale().weights(),
                                         dy.floats(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    if (!sees_own_rows_) add(saved, {0, shape_.rows}, scale().gradients());
  }
  void add(const Saved& saved, const Range& rows, float* dscale) {
    const std::size_t at = row_at(rows, shape_.width);
    ops_.llama().rms_norm_backward_weight(
        {static_cast<int>(rows.count), shape_.width}, saved.buffers[kX].floats() + at,
        saved.buffers[kInverse].floats() + rows.begin, saved.buffers[kDy].floats() + at, dscale);
  }

  NormShape shape_;
  const KeptRows kept_;
  const bool sees_own_rows_;
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
