#include "exec/layers/tied_head.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "core/model/tie.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

class TiedLinear final : public TrainableLayer {
 public:
  TiedLinear(const Layer& layer, const LayerSite& site)
      : extent_(site.extent),
        width_(site.width),
        vocabulary_(layer.out),
        ops_(*site.ops),
        table_(site.shared_table->parameter) {
    if (table_ != nullptr) return;
    LayerSite of_embedding = site;
    of_embedding.path = site.shared_table->path;
    copy_ = std::make_unique<Parameter>(declared(of_embedding, token_table(vocabulary_, width_)));
    copy_->is_copy = copy_->is_tied = true;
    table_ = copy_.get();
  }

  Saved new_saved() const override { return {std::vector<Buffer>(2), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(extent_.words(vocabulary_));
    ops_.linear_backward_input(transposed(), x.floats(), table_->weights(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(extent_.words(width_));
      ops_.linear_forward(transposed(), dy.floats(), table_->weights(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    ops_.linear_backward_weight(transposed(), saved.buffers[kDy].floats(),
                                saved.buffers[kX].floats(), table_->gradients());
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override { parameters.push_back(table_); }

 private:
  enum Slot { kX, kDy };

  /// The layer from vocabulary to width whose weights the table is: our F is its I, our I its F.
  LinearShape transposed() const { return {extent_.rows(), vocabulary_, width_}; }

  Extent extent_;
  int width_, vocabulary_;
  TensorOps& ops_;
  Parameter* table_;  // the embedding's, which lives as long as the stage, or copy_
  std::unique_ptr<Parameter> copy_;
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
