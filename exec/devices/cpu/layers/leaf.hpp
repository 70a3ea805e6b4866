// The layers that hold no other layer: makers of each. `site.width` fits the layer
// (exec/devices/cpu/layers/layers.cpp has looked). The results follow the contract of
// exec/layers/layer.hpp.
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec::cpu {

std::unique_ptr<TrainableLayer> make_linear(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_relu(const LayerSite& site);
std::unique_ptr<TrainableLayer> make_gelu(const LayerSite& site);
std::unique_ptr<TrainableLayer> make_layer_norm(const LayerSite& site);
std::unique_ptr<TrainableLayer> make_attention(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_embedding(const Layer& layer, const LayerSite& site);

/// How far an embedding's elements reach at the start: the layer norms after it undo the size, so
/// what counts is that the first updates are not small beside it.
inline constexpr float kEmbeddingBound = 0.05F;

/// A parameter of `size` elements, uniform in ±bound, the same for equal seed and path.
Parameter random_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                           float bound);
/// A parameter whose elements all have one value.
Parameter constant_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                             float value);

/// A weight matrix in -> out and its bias, as linear layers and the projections of attention use
/// them.
class Projection {
 public:
  Projection(const LayerSite& site, const std::string& name, int in, int out, bool bias);

  void forward(int rows, const float* x, float* y) const;
  void backward_input(int rows, const float* dy, float* dx) const;
  void backward_weight(int rows, const float* x, const float* dy);
  void collect(std::vector<Parameter*>& parameters);

 private:
  int in_ = 0, out_ = 0;
  Numerics numerics_ = Numerics::Fast;
  Parameter weight_, bias_;  // bias_ is empty if there is none
};

}  // namespace pipewright::exec::cpu
