#include "core/model/weights.hpp"

#include <cmath>

namespace pipewright {
namespace {

/// How far an embedding's elements reach at the start: the layer norms after it undo the size, so
/// what counts is that the first updates are not small beside it.
constexpr float kEmbeddingBound = 0.05F;

std::int64_t product(std::int64_t a, std::int64_t b) { return a * b; }

Weight constant(const std::string& name, std::int64_t size, float value) {
  return {.name = name, .size = size, .value = value};
}

Weight statistic(const std::string& name, std::int64_t size, float value) {
  return {.name = name, .size = size, .value = value, .is_statistic = true};
}

/// A uniform of this bound gives outputs a third of the inputs' variance: small enough to start
/// near the uniform loss, large enough to learn.
Weight matrix(const std::string& name, int in, int out) {
  return {
      .name = name, .size = product(in, out), .bound = 1.0F / std::sqrt(static_cast<float>(in))};
}

/// He's bound keeps the size of what goes through relu and the next convolution.
std::vector<Weight> convolution(const Layer& layer) {
  const std::int64_t patch =
      product(layer.image.channels / layer.groups, product(layer.window.size, layer.window.size));
  const std::int64_t filters = layer.image_out.channels;
  std::vector<Weight> weights{{.name = "weight",
                               .size = filters * patch,
                               .bound = std::sqrt(6.0F / static_cast<float>(patch))}};
  if (layer.bias) weights.push_back(constant("bias", filters, 0));
  return weights;
}

std::vector<Weight> batch_norm(std::int64_t channels) {
  return {constant("scale", channels, 1), constant("shift", channels, 0),
          statistic("running_mean", channels, 0), statistic("running_variance", channels, 1),
          statistic("updates", 1, 0)};
}

}  // namespace

Weight token_table(int vocabulary, int width) {
  return {.name = "tokens", .size = product(vocabulary, width), .bound = kEmbeddingBound};
}

std::vector<Weight> weights_of(const Layer& layer, int width) {
  switch (layer.kind) {
    case LayerKind::Linear: {
      if (layer.tied) return {};
      std::vector<Weight> weights{matrix("weight", width, layer.out)};
      if (layer.bias) weights.push_back(constant("bias", layer.out, 0));
      return weights;
    }
    case LayerKind::CausalSelfAttention:
      return {matrix("qkv_weight", width, 3 * width), constant("qkv_bias", 3 * width, 0),
              matrix("output_weight", width, width), constant("output_bias", width, 0)};
    case LayerKind::LayerNorm:
      return {constant("scale", width, 1), constant("shift", width, 0)};
    case LayerKind::Embedding: {
      std::vector<Weight> weights{token_table(layer.vocabulary, layer.out)};
      if (layer.positions > 0)
        weights.push_back({.name = "positions",
                           .size = product(layer.positions, layer.out),
                           .bound = kEmbeddingBound});
      return weights;
    }
    case LayerKind::Conv2d:
      return convolution(layer);
    case LayerKind::BatchNorm:
      return batch_norm(layer.image.channels);
    default:
      return {};
  }
}

double parameter_count(const Layer& layer) {
  double count = layer.kind == LayerKind::Custom ? static_cast<double>(layer.custom.weights) : 0;
  for (const Weight& weight : weights_of(layer, layer.in)) {
    if (!weight.is_statistic) count += static_cast<double>(weight.size);
  }
  for (const Layer& inner : layer.inner) count += parameter_count(inner);
  for (const Layer& inner : layer.shortcut) count += parameter_count(inner);
  return count;
}

}  // namespace pipewright
