#include "core/model/gpu_layers.hpp"

#include "core/model/find_layer.hpp"

namespace pipewright {
namespace {

bool has_operators(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::Linear:
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::LayerNorm:
    case LayerKind::Embedding:
    case LayerKind::Residual:
    case LayerKind::Sequential:
      return true;
    case LayerKind::CausalSelfAttention:
      return layer.kv_heads == 0 && layer.rotary_base <= 0;
    default:
      return false;
  }
}

}  // namespace

std::string fault_on_gpus(const Model& model) {
  const auto missing = find_layer(model, [](const Layer& layer) { return !has_operators(layer); });
  if (!missing) return "";
  const bool is_attention = missing->layer->kind == LayerKind::CausalSelfAttention;
  return "layer \"" + missing->path + "\": " +
         (is_attention ? "attention with rotary positions, or with keys that several heads share, "
                         "is not trained on GPUs yet"
                       : "layers of kind " + std::string(to_string(missing->layer->kind)) +
                             " are not trained on GPUs yet");
}

}  // namespace pipewright
