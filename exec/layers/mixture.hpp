// A mixture of experts: a router, the experts' chain with the arrays of all experts in one, and
// what every row goes through besides (docs/plan-format.md, "Mixtures of experts").
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// As exec/layers/leaf.hpp says.
std::unique_ptr<TrainableLayer> make_mixture(const Layer& layer, const LayerSite& site);

}  // namespace pipewright::exec
