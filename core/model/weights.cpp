#include "core/model/weights.hpp"

#include <cmath>

#include "core/model/latent.hpp"

namespace pipewright {
namespace {

/// How far an embedding's elements reach at the start: the layer norms after it undo the size, so
/// what counts is that the first updates are not small beside it.
constexpr float kEmbeddingBound = 0.05F;

std::int64_t product(std::int64_t a, std::int64_t b) { return a * b; }

Weight constant(std::string_view name, std::int64_t size, float value) {
  return {.name = name, .size = size, .value = value};
}

Weight statistic(std::string_view name, std::int64_t size, float value) {
  return {.name = name, .size = size, .value = value, .is_statistic = true};
}

/// A uniform of this bound gives outputs a third of the inputs' variance: small enough to start
/// near the uniform loss, large enough to learn.
Weight matrix(std::string_view name, int in, int out) {
  return {
      .name = name, .size = product(in, out), .bound = 1.0F / std::sqrt(static_cast<float>(in))};
}

Weight table(std::string_view name, int rows, int width) {
  return {.name = name, .size = product(rows, width), .bound = kEmbeddingBound};
}

/// He's bound keeps the size of what goes through relu and the next convolution.
template <class Visit>
void visit_convolution(const Layer& layer, Visit visit) {
  const std::int64_t patch =
      product(layer.image.channels / layer.groups, product(layer.window.size, layer.window.size));
  const std::int64_t filters = layer.image_out.channels;
  visit(Weight{.name = "weight",
               .size = filters * patch,
               .bound = std::sqrt(6.0F / static_cast<float>(patch))});
  if (layer.bias) visit(constant("bias", filters, 0));
}

template <class Visit>
void visit_batch_norm(std::int64_t channels, Visit visit) {
  visit(constant("scale", channels, 1));
  visit(constant("shift", channels, 0));
  visit(statistic("running_mean", channels, 0));
  visit(statistic("running_variance", channels, 1));
  visit(statistic("updates", 1, 0));
}

/// Queries, keys and values side by side.
template <class Visit>
void visit_attention(const Layer& layer, int width, Visit visit) {
  const int kv_heads = layer.kv_heads > 0 ? layer.kv_heads : layer.heads;
  const int projected = width + 2 * (layer.heads > 0 ? width / layer.heads * kv_heads : width);
  visit(matrix("qkv_weight", width, projected));
  if (layer.bias) visit(constant("qkv_bias", projected, 0));
  visit(matrix("output_weight", width, width));
  if (layer.bias) visit(constant("output_bias", width, 0));
}

template <class Visit>
void visit_weights(const Layer& layer, int width, Visit visit) {
  switch (layer.kind) {
    case LayerKind::Linear:
      if (layer.tied) return;
      visit(matrix("weight", width, layer.out));
      if (layer.bias) visit(constant("bias", layer.out, 0));
      return;
    case LayerKind::CausalSelfAttention:
      return visit_attention(layer, width, visit);
    case LayerKind::LatentAttention:
      return visit(matrix("output_weight", layer.heads * layer.latent.value, layer.out));
    case LayerKind::LayerNorm:
      visit(constant("scale", width, 1));
      visit(constant("shift", width, 0));
      return;
    case LayerKind::RmsNorm:
      visit(constant("scale", width, 1));
      return;
    case LayerKind::Embedding:
      visit(table("tokens", layer.vocabulary, layer.out));
      if (layer.positions > 0) visit(table("positions", layer.positions, layer.out));
      return;
    case LayerKind::Conv2d:
      return visit_convolution(layer, visit);
    case LayerKind::BatchNorm:
      return visit_batch_norm(layer.image.channels, visit);
    case LayerKind::MixtureOfExperts:
      visit(matrix("router_weight", width, layer.choice.experts));
      if (layer.bias) visit(constant("router_bias", layer.choice.experts, 0));
      if (layer.choice.balance_rate > 0) visit(statistic("balance_bias", layer.choice.experts, 0));
      return;
    default:
      return;
  }
}

}  // namespace

Weight token_table(int vocabulary, int width) { return table("tokens", vocabulary, width); }

std::vector<Weight> weights_of(const Layer& layer, int width) {
  std::vector<Weight> weights;
  visit_weights(layer, width, [&](const Weight& weight) { weights.push_back(weight); });
  return weights;
}

std::vector<Weight> weights_of_experts(const Layer& layer, int width, int experts) {
  std::vector<Weight> weights = weights_of(layer, width);
  for (Weight& weight : weights) weight.size *= experts;
  return weights;
}

double parameter_count(const Layer& layer) {
  double count = layer.kind == LayerKind::Custom ? static_cast<double>(layer.custom.weights) : 0;
  visit_weights(layer, layer.in, [&](const Weight& weight) {
    if (!weight.is_statistic) count += static_cast<double>(weight.size);
  });
  const int copies = layer.kind == LayerKind::MixtureOfExperts ? layer.choice.experts : 1;
  for (const Layer& inner : layer.inner) count += copies * parameter_count(inner);
  for (const Layer& inner : layer.shortcut) count += parameter_count(inner);
  for (const Layer& inner : layer.shared) count += parameter_count(inner);
  if (layer.kind == LayerKind::LatentAttention) {
    for (const Layer& inner : latent_layers(layer)) count += parameter_count(inner);
  }
  return count;
}

}  // namespace pipewright
