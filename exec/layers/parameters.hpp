// How parameters start.
#pragma once

#include <cstddef>
#include <string>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// How far an embedding's elements reach at the start: the layer norms after it undo the size, so
/// what counts is that the first updates are not small beside it.
inline constexpr float kEmbeddingBound = 0.05F;

/// A parameter of `size` elements, uniform in ±bound, the same for equal seed and path.
Parameter random_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                           float bound);
/// A parameter whose elements all have one value.
Parameter constant_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                             float value);

}  // namespace pipewright::exec
