// The layers of images: makers of each. `site.width` fits the layer
// (exec/layers/layers.cpp has looked). The results follow the contract of exec/layers/layer.hpp.
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

std::unique_ptr<TrainableLayer> make_conv2d(const Layer& layer, const LayerSite& site);
/// Its running mean and variance are parameters too, marked as statistics: what a micro-batch adds
/// to their "gradients" is its own mean and variance, so whatever sums gradients (schedules,
/// replicas) sums these, and update_statistics() moves the running ones a tenth towards their mean.
std::unique_ptr<TrainableLayer> make_batch_norm(const Layer& layer, const LayerSite& site);
std::unique_ptr<TrainableLayer> make_max_pool(const Layer& layer, const LayerSite& site);
/// AveragePool and GlobalAveragePool.
std::unique_ptr<TrainableLayer> make_average_pool(const Layer& layer, const LayerSite& site);

}  // namespace pipewright::exec
