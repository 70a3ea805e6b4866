// What layers that hold no other layer have in common: the parameters that core/model/weights.hpp
// declares for them, and a fixed number of places for what a micro-batch leaves.
#pragma once

#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/parameters.hpp"

namespace pipewright::exec {

class LeafLayer : public TrainableLayer {
 public:
  Saved new_saved() const final { return {std::vector<Buffer>(slots_), {}}; }
  void backward_weight(Saved& saved) final {
    add_gradients(saved);
    let_go(saved);
  }
  void collect(std::vector<Parameter*>& parameters) final {
    for (Parameter& parameter : weights_) parameters.push_back(&parameter);
  }

 protected:
  LeafLayer(const Layer& layer, const LayerSite& site, std::size_t slots)
      : extent_(site.extent),
        ops_(*site.ops),
        weights_(declared_parameters(layer, site)),
        slots_(slots) {}

  /// W, before what is kept goes.
  virtual void add_gradients(Saved&) {}

  const Extent extent_;
  TensorOps& ops_;
  std::vector<Parameter> weights_;  // as declared; they stay where they are

 private:
  const std::size_t slots_;
};

}  // namespace pipewright::exec
