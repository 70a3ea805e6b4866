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

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    saved.buffers[0] = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = co_await layers_[i]->forward(std::move(x), saved.inner[i]);
      let_go(saved.inner[i]);
    }
    co_return x;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer x = std::exchange(saved.buffers[0], Buffer());
    co_await forward_all(std::move(x), saved);
    co_return co_await backward_input_all(std::move(dy), saved, wanted);
  }
};

}  // namespace

std::unique_ptr<TrainableLayer> make_recomputed(
    std::vector<std::unique_ptr<TrainableLayer>> layers) {
  return std::make_unique<RecomputedLayers>(std::move(layers));
}

}  // namespace pipewright::exec
