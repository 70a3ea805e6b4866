// Layers one after another: what those that hold such a chain have in common.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// Leaves F and I, and what is kept between them, to derived classes; `saved.inner` has one of each
/// layer.
class LayerChain : public TrainableLayer {
 public:
  Saved new_saved() const override {
    Saved saved;
    for (const auto& layer : layers_) saved.inner.push_back(layer->new_saved());
    return saved;
  }
  Task<void> backward_weight(Saved& saved) override {
    for (std::size_t i = layers_.size(); i-- > 0;)
      co_await layers_[i]->backward_weight(saved.inner[i]);
  }
  Task<void> gather_kept_rows(Saved& saved) override {
    for (std::size_t i = layers_.size(); i-- > 0;)
      co_await layers_[i]->gather_kept_rows(saved.inner[i]);
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i]->add_own_rows(saved.inner[i], rows);
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
  void set_loss_share(double share) override {
    for (const auto& layer : layers_) layer->set_loss_share(share);
  }

 protected:
  Task<Buffer> forward_all(Buffer x, Saved& saved) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = co_await layers_[i]->forward(std::move(x), saved.inner[i]);
    co_return x;
  }
  Task<Buffer> backward_input_all(Buffer dy, Saved& saved, bool wanted) {
    for (std::size_t i = layers_.size(); i-- > 0;)
      dy = co_await layers_[i]->backward_input(std::move(dy), saved.inner[i], wanted || i > 0);
    co_return dy;
  }

  std::vector<std::unique_ptr<TrainableLayer>> layers_;
};

}  // namespace pipewright::exec
