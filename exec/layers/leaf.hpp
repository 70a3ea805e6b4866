// The layers that the model's description does not make of others: makers of each. `site.width`
// fits the layer (exec/layers/layers.cpp has looked). The results follow the contract of
// exec/layers/layer.hpp.
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

std::unique_ptr<TrainableLayer> make_linear(const Layer& layer, const LayerSite& site);
/// Relu and Gelu.
std::unique_ptr<TrainableLayer> make_activation(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_layer_norm(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_rms_norm(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_swiglu(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_attention(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_latent_attention(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_embedding(const Layer& layer, const LayerSite& site);

}  // namespace pipewright::exec
