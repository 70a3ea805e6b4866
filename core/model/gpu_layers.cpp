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
    case LayerKind::RmsNorm:
    case LayerKind::Swiglu:
    case LayerKind::CausalSelfAttention:
    case LayerKind::Embedding:
    case LayerKind::Residual:
    case LayerKind::Sequential:
    case LayerKind::Conv2d:
    case LayerKind::BatchNorm:
    case LayerKind::MaxPool:
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool:
    case LayerKind::Graph:
    case LayerKind::Add:
    case LayerKind::Concat:
    case LayerKind::MixtureOfExperts:
    case LayerKind::LatentAttention:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string fault_on_gpus(const Model& model) {
  const auto missing = find_layer(model, [](const Layer& layer) { return !has_operators(layer); });
  if (!missing) return "";
  return "layer \"" + missing->path + "\": layers of kind " +
         std::string(to_string(missing->layer->kind)) + " are not trained on GPUs yet";
}

}  // namespace pipewright
