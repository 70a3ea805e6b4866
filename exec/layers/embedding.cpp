#include <string>
#include <utility>
#include <vector>

#include "core/order/call.hpp"
#include "exec/layers/leaf.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_group.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// Of a table whose rows ranks divide each rank looks up its own tokens.
class EmbeddingLayer final : public LeafLayer {
 public:
  EmbeddingLayer(const Layer& layer, const LayerSite& site)
      : LeafLayer(layer, site, kSlots),
        shape_{site.extent.rows(), site.extent.sequence, layer.out},
        words_(site.extent.words(layer.out)),
        has_positions_(layer.positions > 0) {
    if (site.tensor != nullptr && site.split == Split::Rows) divide_table(layer, site);
    if (site.shared_table == nullptr) return;
    weights_[0].is_tied = true;
    site.shared_table->parameter = &weights_[0];
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    if (tensor_ == nullptr) {
      ops_.embedding_forward(shape_, x.ids(), weights_[0].weights(), positions(), y.floats());
    } else {
      co_await look_up_together(x, y);
    }
    saved.buffers[kIds] = std::move(x);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool) override {
    saved.buffers[kDy] = std::move(dy);
    co_return Buffer();
  }

 private:
  enum Slot { kIds, kDy, kSlots };

  void divide_table(const Layer& layer, const LayerSite& site) {
    tensor_ = site.tensor;
    path_ = as_call_name(site.path);
    const Slice part = rows_of(layer.vocabulary, layer.out, tensor_->index(), tensor_->size());
    divide(weights_[0], part);
    own_ = {static_cast<int>(part.rows.begin), static_cast<int>(part.rows.count), layer.vocabulary};
    turns_ = turns_of({{0, 1}}, tensor_->size());
  }

  const float* positions() const { return has_positions_ ? weights_[1].weights() : nullptr; }

  Task<void> look_up_together(const Buffer& ids, const Buffer& y) const {
    const auto find_own = [&](bool alone) {
      ops_.look_up(shape_, own_, alone, ids.ids(), weights_[0].weights(), y.floats());
    };
    SumOfMembers sum{.what = path_,
                     .values = y.floats(),
                     .rows = shape_.rows,
                     .width = shape_.width,
                     .multiply = [&] { find_own(true); },
                     .turns = turns_,
                     .go_on = [&](const Range&) { find_own(false); }};
    co_await tensor_->together(sum);
    if (has_positions_) ops_.add_positions(shape_, positions(), y.floats());
  }

  void add_gradients(Saved& saved) override {
    const std::int32_t* const ids = saved.buffers[kIds].ids();
    const float* const dy = saved.buffers[kDy].floats();
    float* const dpositions = has_positions_ ? weights_[1].gradients() : nullptr;
    if (tensor_ == nullptr)
      ops_.embedding_backward_weight(shape_, ids, dy, weights_[0].gradients(), dpositions);
    else
      ops_.look_up_backward_weight(shape_, own_, ids, dy, weights_[0].gradients(), dpositions);
  }

  EmbeddingShape shape_;
  std::size_t words_;
  bool has_positions_;
  TensorGroup* tensor_ = nullptr;  // where ranks divide the table
  std::string path_;               // of the layer, as a name of calls
  TokenRange own_;
  std::vector<ChainTurn> turns_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_embedding(const Layer& layer, const LayerSite& site) {
  return std::make_unique<EmbeddingLayer>(layer, site);
}

}  // namespace pipewright::exec
