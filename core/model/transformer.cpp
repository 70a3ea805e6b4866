#include "core/model/transformer.hpp"

#include <span>
#include <utility>

#include "core/model/layers.hpp"

namespace pipewright {

namespace {

LayerKind norm_of(const TransformerShape& shape) {
  return shape.style == TransformerStyle::Llama ? LayerKind::RmsNorm : LayerKind::LayerNorm;
}

std::vector<Layer> gated(int width, int ffn) {
  Layer swiglu = layer_of_width("swiglu", LayerKind::Swiglu, 2 * ffn);
  swiglu.out = ffn;
  return {linear_layer("gate and up", width, 2 * ffn, false), std::move(swiglu),
          linear_layer("down", ffn, width, false)};
}

Layer mixture_of_experts(const TransformerShape& shape) {
  Layer layer = layer_of_width("experts", LayerKind::MixtureOfExperts, shape.hidden);
  layer.choice = shape.choice;
  layer.bias = false;
  layer.inner = gated(shape.hidden, shape.ffn);
  if (shape.shared_ffn > 0) layer.shared = gated(shape.hidden, shape.shared_ffn);
  return layer;
}

std::vector<Layer> feed_forward_of(int block, const TransformerShape& shape) {
  const int width = shape.hidden;
  if (shape.style == TransformerStyle::Llama) {
    std::vector<Layer> layers{layer_of_width("norm", LayerKind::RmsNorm, width)};
    if (shape.has_experts(block)) {
      layers.push_back(mixture_of_experts(shape));
    } else {
      const int ffn = shape.has_experts() ? shape.dense_ffn : shape.ffn;
      for (Layer& layer : gated(width, ffn)) layers.push_back(std::move(layer));
    }
    return layers;
  }
  return {layer_of_width("norm", LayerKind::LayerNorm, width), linear_layer("up", width, shape.ffn),
          layer_of_width("gelu", LayerKind::Gelu, shape.ffn),
          linear_layer("down", shape.ffn, width)};
}

Layer attention_of(const TransformerShape& shape) {
  const bool is_latent = shape.latent.is_used();
  Layer attention = layer_of_width(
      "attention", is_latent ? LayerKind::LatentAttention : LayerKind::CausalSelfAttention,
      shape.hidden);
  attention.heads = shape.heads;
  attention.latent = shape.latent;
  if (shape.style == TransformerStyle::Llama) {
    attention.kv_heads = shape.kv_heads;
    attention.rotary_base = shape.rotary_base;
    attention.bias = false;
  }
  return attention;
}

Layer block(int number, const TransformerShape& shape) {
  Layer attend =
      layer_group("attend", LayerKind::Residual,
                  {layer_of_width("norm", norm_of(shape), shape.hidden), attention_of(shape)});
  Layer feed_forward =
      layer_group("feed forward", LayerKind::Residual, feed_forward_of(number, shape));
  return layer_group("block " + std::to_string(number), LayerKind::Sequential,
                     {std::move(attend), std::move(feed_forward)});
}

/// What the first block with experts has, and the width of those in front of it.
void read_off_feed_forward(std::span<const Layer> blocks, TransformerShape& shape) {
  const auto last_of = [](const Layer& block) -> const Layer* {
    const bool is_block = block.inner.size() == 2 && !block.inner[1].inner.empty();
    return is_block ? &block.inner[1].inner.back() : nullptr;
  };
  for (const Layer& block : blocks) {
    const Layer* const last = last_of(block);
    if (last == nullptr) return;
    if (last->kind != LayerKind::MixtureOfExperts) {
      shape.ffn = last->in;
      ++shape.dense_blocks;
      continue;
    }
    shape.dense_ffn = std::exchange(shape.ffn, last->inner.back().in);
    shape.choice = last->choice;
    if (!last->shared.empty()) shape.shared_ffn = last->shared.back().in;
    return;
  }
  shape.dense_blocks = 0;
}

}  // namespace

std::string_view to_string(TransformerStyle style) {
  return style == TransformerStyle::Llama ? "llama" : "gpt";
}

std::vector<Layer> expand(const TransformerShape& shape) {
  std::vector<Layer> layers;
  Layer embedding;
  embedding.name = "embedding";
  embedding.kind = LayerKind::Embedding;
  embedding.in = 1;
  embedding.out = shape.hidden;
  embedding.vocabulary = shape.vocabulary;
  if (shape.style == TransformerStyle::Gpt) embedding.positions = shape.sequence;
  layers.push_back(std::move(embedding));
  for (int k = 0; k < shape.layers; ++k) {
    layers.push_back(block(k, shape));
  }
  Layer logits = linear_layer("logits", shape.hidden, shape.vocabulary, false);
  logits.tied = shape.tied_head;
  layers.push_back(
      layer_group("head", LayerKind::Sequential,
                  {layer_of_width("norm", norm_of(shape), shape.hidden), std::move(logits)}));
  return layers;
}

std::optional<TransformerShape> transformer_shape_of(const Model& model) {
  if (model.layers.size() < 3 || model.loss != LossKind::SoftmaxCrossEntropy) {
    return std::nullopt;
  }
  // Read the numbers off the places where an expansion has them, then see if it is one.
  const Layer& embedding = model.layers.front();
  const Layer& first = model.layers[1];
  if (first.inner.size() != 2 || first.inner[0].inner.size() != 2 ||
      first.inner[1].inner.size() < 2) {
    return std::nullopt;
  }
  TransformerShape shape;
  shape.hidden = embedding.out;
  shape.layers = static_cast<int>(model.layers.size()) - 2;
  const Layer& attention = first.inner[0].inner[1];
  shape.heads = attention.heads;
  read_off_feed_forward(std::span(model.layers).subspan(1, model.layers.size() - 2), shape);
  if (attention.rotary_base > 0) {
    shape.style = TransformerStyle::Llama;
    shape.kv_heads = attention.kv_heads;
    shape.rotary_base = attention.rotary_base;
    shape.latent = attention.latent;
  }
  shape.vocabulary = embedding.vocabulary;
  shape.sequence = model.sequence;
  const Layer& head = model.layers.back();
  shape.tied_head = !head.inner.empty() && head.inner.back().tied;
  if (expand(shape) != model.layers) {
    return std::nullopt;
  }
  return shape;
}

}  // namespace pipewright
