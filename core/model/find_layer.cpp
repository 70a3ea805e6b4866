#include "core/model/find_layer.hpp"

#include <vector>

namespace pipewright {
namespace {

std::optional<FoundLayer> find_among(const std::vector<Layer>& layers, const std::string& outer,
                                     const std::function<bool(const Layer&)>& is_wanted) {
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    const Layer& layer = layers[static_cast<std::size_t>(i)];
    const std::string path = layer_path(outer, i, layer);
    if (is_wanted(layer)) return FoundLayer{&layer, path};
    if (auto found = find_among(layer.inner, path, is_wanted)) return found;
    if (auto found = find_among(layer.shared, path + "/shared", is_wanted)) return found;
    if (auto found = find_among(layer.shortcut, path + "/shortcut", is_wanted)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::string layer_path(const std::string& outer, int index, const Layer& layer) {
  std::string path = outer.empty() ? "" : outer + "/";
  path += std::to_string(index);
  return layer.name.empty() ? path : path + "." + layer.name;
}

std::optional<FoundLayer> find_layer(const Model& model,
                                     const std::function<bool(const Layer&)>& is_wanted) {
  return find_among(model.layers, "", is_wanted);
}

}  // namespace pipewright
