// A layer of a model by what it is, with the path by which errors name it. Pure function.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/model/model.hpp"

namespace pipewright {

/// "4.block3": the path of the model's layer `index`; an inner layer's begins with its outer one's.
std::string layer_path(const std::string& outer, int index, const Layer& layer);

struct FoundLayer {
  const Layer* layer = nullptr;
  std::string path;  // layer_path(), from the model's own layer down
};

/// The first one for which it is true, a layer before those that it holds; nullopt: there is none.
std::optional<FoundLayer> find_layer(const Model& model,
                                     const std::function<bool(const Layer&)>& is_wanted);

}  // namespace pipewright
