#include "exec/cpu/recompute_layer.hpp"

#include <utility>

namespace pipewright::exec::cpu {
namespace {

void let_go(Saved& saved) {
  for (Buffer& buffer : saved.buffers) buffer.reset();
  for (Saved& inner : saved.inner) let_go(inner);
}

class RecomputedLayers final : public TrainableLayer {
 public:
  explicit RecomputedLayers(std::vector<std::unique_ptr<TrainableLayer>> layers)
      : layers_(std::move(layers)) {}

  Saved new_saved() const override {
    Saved saved{std::vector<Buffer>(1), {}};
    for (const auto& layer : layers_) saved.inner.push_back(layer->new_saved());
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
    Buffer x = std::exchange(saved.buffers[0], Buffer());
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->forward(std::move(x), saved.inner[i]);
    x.reset();
    for (std::size_t i = layers_.size(); i-- > 0;)
      dy = layers_[i]->backward_input(std::move(dy), saved.inner[i], wanted || i > 0);
    return dy;
  }

  void backward_weight(Saved& saved) override {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i]->backward_weight(saved.inner[i]);
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (const auto& layer : layers_) layer->collect(parameters);
  }

  void update_statistics() override {
    for (const auto& layer : layers_) layer->update_statistics();
  }

  void set_evaluating(bool evaluating) override {
    for (const auto& layer : layers_) layer->set_evaluating(evaluating);
  }

 private:
  std::vector<std::unique_ptr<TrainableLayer>> layers_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_recomputed(
    std::vector<std::unique_ptr<TrainableLayer>> layers) {
  return std::make_unique<RecomputedLayers>(std::move(layers));
}

}  // namespace pipewright::exec::cpu
