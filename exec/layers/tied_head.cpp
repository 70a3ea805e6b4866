#include "exec/layers/tied_head.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/tensor_split.hpp"
#include "core/model/tie.hpp"
#include "core/order/call.hpp"
#include "exec/layers/divided_rows.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {
namespace {

/// This rank's rows of the table: all of them where nobody divides it.
Slice own_rows(const Layer& layer, const LayerSite& site) {
  if (site.tensor == nullptr || site.split != Split::Columns) return {};
  return rows_of(layer.out, site.width, site.tensor->index(), site.tensor->size());
}

/// A copy of the table where the embedding is on another rank; nothing where it is here.
std::vector<Parameter> copy_of_table(const Layer& layer, const LayerSite& site) {
  std::vector<Parameter> copy;
  if (site.shared_table->parameter != nullptr) return copy;
  LayerSite of_embedding = site;
  of_embedding.path = site.shared_table->path;
  copy.push_back(declared(of_embedding, token_table(layer.out, site.width)));
  if (const Slice rows = own_rows(layer, site); !rows.is_whole()) divide(copy.back(), rows);
  copy.back().is_copy = copy.back().is_tied = true;
  return copy;
}

/// The layer from vocabulary to width whose weights the table is: our F is its I, our I its F.
/// Where ranks divide the table, each has logits of its own rows.
class TiedLinear final : public LeafLayer {
 public:
  TiedLinear(const Layer& layer, const LayerSite& site)
      : LeafLayer(site, copy_of_table(layer, site), kSlots),
        rows_(site),
        table_(weights_.empty() ? site.shared_table->parameter : &weights_.front()),
        transposed_{site.extent.rows(), layer.out, site.width} {
    const Slice rows = own_rows(layer, site);
    if (rows.is_whole()) return;
    tensor_ = site.tensor;
    path_ = as_call_name(site.path);
    transposed_.in = static_cast<int>(rows.rows.count);
    turns_ = turns_of({{0, rows.rows.count}}, tensor_->size());
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_of(transposed_.rows, transposed_.in));
    const DividedRows::AllRows all = co_await all_rows_of(x);
    ops_.linear_backward_input(transposed_, all.at, table_->weights(), y.floats());
    saved.buffers[kX] = std::move(x);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(extent_.words(transposed_.out));
      co_await multiply(dy.floats(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    co_return dx;
  }

  Task<void> gather_kept_rows(Saved& saved) override {
    return rows_.complete(name(), saved.buffers[kX], transposed_.rows, transposed_.out);
  }
  void add_rows(Saved& saved, const Range& rows) override {
    LinearShape shape = transposed_;
    shape.rows = static_cast<int>(rows.count);
    ops_.linear_backward_weight(
        shape, saved.buffers[kDy].floats() + words_of(rows.begin, transposed_.in),
        saved.buffers[kX].floats() + words_of(rows.begin, transposed_.out), table_->of_own_rows);
  }
  void collect(std::vector<Parameter*>& parameters) override { parameters.push_back(table_); }

 private:
  enum Slot { kX, kDy, kSlots };

  Task<void> multiply(const float* dy, float* dx) const {
    if (tensor_ == nullptr) {
      ops_.linear_forward(transposed_, dy, table_->weights(), dx);
      co_return;
    }
    const SumOfMembers sum{
        .what = name(),
        .rows = transposed_.rows,
        .width = transposed_.out,
        .multiply =
            [&](float* all) { ops_.linear_forward(transposed_, dy, table_->weights(), all); },
        .turns = turns_,
        .go_on =
            [&](const Range&, float* all) {
              ops_.linear_forward_on(transposed_, dy, table_->weights(), all);
            }};
    co_await rows_.sum(sum, dx);
  }

  Task<void> add_gradients_task(Saved& saved) override {
    const DividedRows::AllRows all = co_await all_rows_of(saved.buffers[kX]);
    ops_.linear_backward_weight(transposed_, saved.buffers[kDy].floats(), all.at,
                                table_->gradients());
  }

  Task<DividedRows::AllRows> all_rows_of(const Buffer& x) const {
    return rows_.gather(name(), x.floats(), transposed_.rows, transposed_.out);
  }
  std::string name() const { return rows_.call_name(path_, kIn); }

  const DividedRows rows_;

  Parameter* table_;  // the embedding's, which lives as long as the stage, or weights_[0]
  LinearShape transposed_;
  TensorGroup* tensor_ = nullptr;  // where ranks divide the table
  std::string path_;               // of the layer, as a name of calls
  std::vector<ChainTurn> turns_;
};

}  // namespace

std::unique_ptr<SharedTable> shared_table_of(const Model& model) {
  if (!tie_of(model)) return nullptr;
  const Layer* layer = &model.layers.front();
  std::string path = layer_path("", 0, *layer);
  for (; !layer->inner.empty(); layer = &layer->inner.front())
    path = layer_path(path, 0, layer->inner.front());
  return std::make_unique<SharedTable>(SharedTable{path, nullptr});
}

std::unique_ptr<TrainableLayer> make_tied_linear(const Layer& layer, const LayerSite& site) {
  PIPEWRIGHT_ASSERT(site.shared_table != nullptr, "a tied layer without its model's table");
  return std::make_unique<TiedLinear>(layer, site);
}

}  // namespace pipewright::exec
