#include "exec/devices/cuda/trainable_layers.hpp"

#include <string>

#include "core/base/error.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec::cuda {
namespace {

void require_layer(const Layer& layer, const std::string& path) {
  switch (layer.kind) {
    case LayerKind::Linear:
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::LayerNorm:
    case LayerKind::Embedding:
      return;
    case LayerKind::CausalSelfAttention:
      if (layer.kv_heads == 0 && layer.rotary_base <= 0) return;
      throw InputError("layer \"" + path +
                       "\": attention with rotary positions, or with keys that several heads "
                       "share, is not trained on GPUs yet; use --device cpu");
    case LayerKind::Residual:
    case LayerKind::Sequential:
      break;
    default:
      throw InputError("layer \"" + path + "\": layers of kind " +
                       std::string(to_string(layer.kind)) +
                       " are not trained on GPUs yet; use --device cpu");
  }
  for (int i = 0; i < static_cast<int>(layer.inner.size()); ++i) {
    const Layer& inner = layer.inner[static_cast<std::size_t>(i)];
    require_layer(inner, layer_path(path, i, inner));
  }
  for (int i = 0; i < static_cast<int>(layer.shortcut.size()); ++i) {
    const Layer& inner = layer.shortcut[static_cast<std::size_t>(i)];
    require_layer(inner, layer_path(path + "/shortcut", i, inner));
  }
}

}  // namespace

void require_layers(const Model& model) {
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const Layer& layer = model.layers[static_cast<std::size_t>(i)];
    require_layer(layer, layer_path("", i, layer));
  }
}

}  // namespace pipewright::exec::cuda
