#include <string>
#include <utility>
#include <vector>

#include "core/order/call.hpp"
#include "exec/layers/divided_rows.hpp"
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
        shape_{.rows = site.extent.rows(),
               .sequence = site.extent.sequence,
               .width = layer.out,
               .context = site.context_place()},
        rows_(site),
        own_shape_(shape_of_own_rows()),
        words_(site.own_extent().words(layer.out)),
        has_positions_(layer.positions > 0),
        path_(as_call_name(site.path)) {
    if (site.tensor != nullptr && site.split == Split::Rows) divide_table(layer, site);
    if (site.shared_table == nullptr) return;
    weights_[0].is_tied = true;
    site.shared_table->parameter = &weights_[0];
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_);
    if (tensor_ == nullptr) {
      ops_.embedding_forward(own_shape_, x.ids() + own_shape_.first_row, weights_[0].weights(),
                             positions(), y.floats());
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

  Task<void> gather_kept_rows(Saved& saved) override {
    return rows_.complete(name(), saved.buffers[kDy], shape_.rows, shape_.width);
  }
  void add_rows(Saved& saved, const Range& rows) override {
    EmbeddingShape shape = shape_;
    shape.rows = static_cast<int>(rows.count);
    shape.first_row = static_cast<int>(rows.begin);
    add(shape, saved, saved.buffers[kDy].floats() + words_of(rows.begin, shape_.width),
        weights_[0].of_own_rows, has_positions_ ? weights_[1].of_own_rows : nullptr);
  }

 private:
  enum Slot { kIds, kDy, kSlots };

  void divide_table(const Layer& layer, const LayerSite& site) {
    tensor_ = site.tensor;
    const Slice part = rows_of(layer.vocabulary, layer.out, tensor_->index(), tensor_->size());
    divide(weights_[0], part);
    own_ = {static_cast<int>(part.rows.begin), static_cast<int>(part.rows.count), layer.vocabulary};
    turns_ = turns_of({{0, 1}}, tensor_->size());
  }

  EmbeddingShape shape_of_own_rows() const {
    const Range own = rows_.own(shape_.rows);
    EmbeddingShape shape = shape_;
    shape.rows = static_cast<int>(own.count);
    shape.first_row = static_cast<int>(own.begin);
    return shape;
  }
  std::string name() const { return rows_.call_name(path_, kOut); }

  const float* positions() const { return has_positions_ ? weights_[1].weights() : nullptr; }

  Task<void> look_up_together(const Buffer& ids, const Buffer& y) const {
    const auto find_own = [&](bool alone, float* all) {
      ops_.look_up(shape_, own_, alone, ids.ids(), weights_[0].weights(), all);
    };
    const SumOfMembers sum{.what = name(),
                           .rows = shape_.rows,
                           .width = shape_.width,
                           .multiply = [&](float* all) { find_own(true, all); },
                           .turns = turns_,
                           .go_on = [&](const Range&, float* all) { find_own(false, all); }};
    co_await rows_.sum(sum, y.floats());
    if (has_positions_) ops_.add_positions(own_shape_, positions(), y.floats());
  }

  Task<void> add_gradients_task(Saved& saved) override {
    const DividedRows::AllRows all =
        co_await rows_.gather(name(), saved.buffers[kDy].floats(), shape_.rows, shape_.width);
    add(shape_, saved, all.at, weights_[0].gradients(),
        has_positions_ ? weights_[1].gradients() : nullptr);
  }

  void add(const EmbeddingShape& shape, const Saved& saved, const float* dy, float* dtokens,
           float* dpositions) const {
    const std::int32_t* const ids = saved.buffers[kIds].ids() + shape.first_row;
    if (tensor_ == nullptr)
      ops_.embedding_backward_weight(shape, ids, dy, dtokens, dpositions);
    else
      ops_.look_up_backward_weight(shape, own_, ids, dy, dtokens, dpositions);
  }

  const EmbeddingShape shape_;
  const DividedRows rows_;
  const EmbeddingShape own_shape_;  // of this rank's rows
  std::size_t words_;
  bool has_positions_;
  const std::string path_;         // of the layer, as a name of calls
  TensorGroup* tensor_ = nullptr;  // where ranks divide the table
  TokenRange own_;
  std::vector<ChainTurn> turns_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_embedding(const Layer& layer, const LayerSite& site) {
  return std::make_unique<EmbeddingLayer>(layer, site);
}

}  // namespace pipewright::exec
