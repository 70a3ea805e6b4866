// From the declaration of a layer's weights to parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// Without memory: its name in the model is the layer's path and its own. Where ranks divide
/// layers, or experts, what they do not divide is a copy on all but the first.
Parameter declared(const LayerSite& site, const Weight& weight);
/// Those of weights_of() for the layer that stands at the site.
std::vector<Parameter> declared_parameters(const Layer& layer, const LayerSite& site);

/// From now on it is this part of the layer's array, which ranks divide along tp, or the part of a
/// member of the group that divides experts. Before allocate().
void divide(Parameter& parameter, const Slice& slice);
void divide_experts(Parameter& parameter, const Slice& slice, const ExpertGroup& group);

/// Memory for value and gradient where there is none, filled as declared: random numbers depend on
/// the seed and the parameter's name alone.
void allocate(Parameter& parameter, std::uint64_t seed);

/// Both, for those who make one at a time.
Parameter allocated(const LayerSite& site, const Weight& weight);

}  // namespace pipewright::exec
