// Causal self-attention with its projections: x -> (queries, keys, values) -> attention -> output.
// Where positions are rotary, queries and keys are turned by theirs before they meet.
#include <optional>
#include <utility>

#include "exec/layers/context_attention.hpp"
#include "exec/layers/leaf.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/projection.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// Queries, keys and values, each of which is divided by heads.
std::vector<Range> parts_of_qkv(const AttentionShape& shape) {
  const int keys = shape.key_width();
  return {{0, shape.width}, {shape.width, keys}, {shape.width + keys, keys}};
}

AttentionShape whole_shape(const Layer& layer, const LayerSite& site) {
  return {site.extent.samples, site.extent.sequence, site.width, layer.heads, layer.kv_heads};
}

/// With this rank's heads.
AttentionShape own_shape(AttentionShape shape, const TensorGroup* tensor) {
  if (tensor == nullptr) return shape;
  shape.width /= tensor->size();
  shape.kv_heads = shape.key_heads() / tensor->size();
  shape.heads /= tensor->size();
  return shape;
}

class AttentionLayer final : public LeafLayer {
 public:
  AttentionLayer(const Layer& layer, const LayerSite& site)
      : LeafLayer(layer, site, kSlots),
        shape_(own_shape(whole_shape(layer, site), site.tensor)),
        rotary_base_(layer.rotary_base),
        words_(site.own_extent().words(site.width)),
        context_words_(site.extent.words(shape_.width)),
        qkv_words_(site.extent.words(shape_.qkv_width())),
        recomputes_(site.recomputes_attention),
        place_(site.context_place()),
        qkv_(site, site.width, whole_shape(layer, site).qkv_width(), weights_[0],
             layer.bias ? &weights_[1] : nullptr,
             {Split::Columns, parts_of_qkv(whole_shape(layer, site))}),
        output_(site, site.width, site.width, weights_[layer.bias ? 2 : 1],
                layer.bias ? &weights_[3] : nullptr, {Split::Rows}) {
    if (site.context == nullptr) return;
    if (site.context->is_ring() && site.context->numerics() == Numerics::Fast)
      ring_.emplace(site, shape_);
    else
      on_parts_.emplace(site, shape_);
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer qkv = ops_.take(qkv_words_);
    co_await qkv_.forward(shape_.rows(), x.floats(), qkv.floats());
    rotate(false, qkv);
    saved.buffers[kQkv] = std::move(qkv);
    if (ring_) {
      co_await attend_round(saved);
    } else {
      const Buffer keys = co_await keys_of_all(saved);
      attend(saved, keys);
    }
    Buffer y = ops_.take(words_);
    co_await output_.forward(shape_.rows(), saved.buffers[kContext].floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    if (recomputes_) {
      saved.buffers[kProbabilities].reset();
      saved.buffers[kContext].reset();
    }
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer keys = co_await keys_of_all(saved);
    if (recomputes_ && ring_) co_await attend_round(saved);
    if (recomputes_ && !ring_) attend(saved, keys);
    Buffer dcontext = ops_.take(context_words_);
    co_await output_.backward_input(shape_.rows(), dy.floats(), dcontext.floats());
    // W of the queries, keys and values needs this even where dx is not wanted.
    Buffer dqkv = ops_.take(qkv_words_);
    if (ring_) {
      co_await ring_->backward_input({.qkv = saved.buffers[kQkv],
                                      .context = saved.buffers[kContext],
                                      .log_sums = saved.buffers[kProbabilities],
                                      .dcontext = dcontext,
                                      .dqkv = dqkv});
    } else if (on_parts_) {
      co_await on_parts_->backward_input({.qkv = saved.buffers[kQkv],
                                          .keys = keys,
                                          .probabilities = saved.buffers[kProbabilities],
                                          .dcontext = dcontext,
                                          .dqkv = dqkv});
    } else {
      ops_.attention_backward_input(
          shape_, saved.buffers[kQkv].floats(), saved.buffers[kProbabilities].floats(),
          saved.buffers[kContext].floats(), dcontext.floats(), dqkv.floats());
    }
    rotate(true, dqkv);
    saved.buffers[kQkv].reset();
    saved.buffers[kProbabilities].reset();
    Buffer dx;
    if (wanted) {
      // The gradient of the context has served.
      dx = context_words_ == words_ ? std::move(dcontext) : ops_.take(words_);
      co_await qkv_.backward_input(shape_.rows(), dqkv.floats(), dx.floats());
    }
    saved.buffers[kDqkv] = std::move(dqkv);
    saved.buffers[kDy] = std::move(dy);
    co_return dx;
  }

  Task<void> gather_kept_rows(Saved& saved) override {
    co_await qkv_.gather_kept_rows(shape_.rows(), saved.buffers[kX], saved.buffers[kDqkv]);
    co_await output_.gather_kept_rows(shape_.rows(), saved.buffers[kContext], saved.buffers[kDy]);
  }
  void add_rows(Saved& saved, const Range& rows) override {
    qkv_.add_own_rows(rows, saved.buffers[kX].floats(), saved.buffers[kDqkv].floats());
    output_.add_own_rows(rows, saved.buffers[kContext].floats(), saved.buffers[kDy].floats());
  }

 private:
  Task<void> add_gradients_task(Saved& saved) override {
    co_await qkv_.backward_weight(shape_.rows(), saved.buffers[kX].floats(),
                                  saved.buffers[kDqkv].floats());
    co_await output_.backward_weight(shape_.rows(), saved.buffers[kContext].floats(),
                                     saved.buffers[kDy].floats());
  }

  void rotate(bool back, Buffer& qkv) {
    if (rotary_base_ <= 0) return;
    ops_.llama().rotate({.samples = shape_.samples,
                         .sequence = shape_.sequence,
                         .heads = shape_.heads + shape_.key_heads(),
                         .head_width = shape_.head_width(),
                         .stride = shape_.qkv_width(),
                         .base = rotary_base_,
                         .context = place_},
                        back, qkv.floats());
  }

  /// Nothing where this rank has whole sequences.
  Task<Buffer> keys_of_all(const Saved& saved) const {
    if (!on_parts_) co_return Buffer();
    co_return co_await on_parts_->gather_keys(saved.buffers[kQkv]);
  }

  /// In the place of probabilities stands what they follow from.
  Task<void> attend_round(Saved& saved) {
    saved.buffers[kContext] = ops_.take(context_words_);
    saved.buffers[kProbabilities] = ops_.take_floats(ring_->log_sums());
    co_await ring_->forward(saved.buffers[kQkv], saved.buffers[kContext],
                            saved.buffers[kProbabilities]);
  }

  void attend(Saved& saved, const Buffer& keys) {
    const Buffer& qkv = saved.buffers[kQkv];
    const Buffer context = saved.buffers[kContext] = ops_.take(context_words_);
    if (on_parts_) {
      const Buffer p = saved.buffers[kProbabilities] =
          ops_.take(on_parts_->shape().probabilities());
      return on_parts_->forward(qkv, keys, p.floats(), context.floats());
    }
    const Buffer p = saved.buffers[kProbabilities] = ops_.take_of_attention(shape_);
    ops_.attention_forward(shape_, qkv.floats(), p.floats(), context.floats());
  }

  enum Slot { kX, kQkv, kProbabilities, kContext, kDqkv, kDy, kSlots };

  AttentionShape shape_;
  double rotary_base_;
  std::size_t words_, context_words_, qkv_words_;
  bool recomputes_;
  ContextPlace place_;
  // One of them where ranks have a part of every sequence each.
  std::optional<ContextAttention> on_parts_;
  std::optional<RingAttention> ring_;
  Projection qkv_, output_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_attention(const Layer& layer, const LayerSite& site) {
  return std::make_unique<AttentionLayer>(layer, site);
}

}  // namespace pipewright::exec
