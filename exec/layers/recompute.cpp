#include "exec/layers/recompute.hpp"

#include <utility>

#include "exec/layers/chain.hpp"

namespace pipewright::exec {
namespace {

class RecomputedLayers final : public LayerChain {
 public:
  explicit RecomputedLayers(std::vector<std::unique_ptr<TrainableLayer>> layers) {
    layers_ = std::move(layers);
  }

  Saved new_saved() const override {
    Saved saved = LayerChain::new_saved();
    saved.buffers.resize(1);
    return saved;
  }

  Buffer forward(Buffer x, Saved& saved) override {
    saved.buffers[0] = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i]->forward(std::move(x), saved.inner[i]);
      let_go(saved.inner[i]);
    }
    return x;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    forward_all(std::exchange(saved.buffers[0], Buffer()), saved);
    return backward_input_all(std::move(dy), saved, wanted);
  }
};

}  // namespace

std::unique_ptr<TrainableLayer> make_recomputed(
    std::vector<std::unique_ptr<TrainableLayer>> layers) {
  return std::make_unique<RecomputedLayers>(std::move(layers));
}

}  // namespace pipewright::exec
