#include "exec/layers/tied_head.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "core/model/tie.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/parameters.hpp"

namespace pipewright::exec {
namespace {

/// A copy of the table where the embedding is on another rank; nothing where it is here.
std::vector<Parameter> copy_of_table(const Layer& layer, const LayerSite& site) {
  std::vector<Parameter> copy;
  if (site.shared_table->parameter != nullptr) return copy;
  LayerSite of_embedding = site;
  of_embedding.path = site.shared_table->path;
  copy.push_back(declared(of_embedding, token_table(layer.out, site.width)));
  copy.back().is_copy = copy.back().is_tied = true;
  return copy;
}

class TiedLinear final : public KeepingLayer {
 public:
  TiedLinear(const Layer& layer, const LayerSite& site)
      : KeepingLayer(site, copy_of_table(layer, site), site.width, layer.out),
        table_(weights_.empty() ? site.shared_table->parameter : &weights_.front()) {}

  void collect(std::vector<Parameter*>& parameters) override { parameters.push_back(table_); }

 private:
  /// The layer from vocabulary to width whose weights the table is: our F is its I, our I its F.
  LinearShape transposed() const { return {extent_.rows(), out_, in_}; }

  void compute(const Buffer& x, Buffer& y, Saved&) override {
    ops_.linear_backward_input(transposed(), x.floats(), table_->weights(), y.floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved&) override {
    ops_.linear_forward(transposed(), dy.floats(), table_->weights(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    ops_.linear_backward_weight(transposed(), saved.buffers[kDy].floats(),
                                saved.buffers[kX].floats(), table_->gradients());
  }

  Parameter* table_;  // the embedding's, which lives as long as the stage, or weights_[0]
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
