#include "core/model/transformer.hpp"

#include <utility>

#include "core/model/layers.hpp"

namespace pipewright {

namespace {

Layer same_width(std::string name, LayerKind kind, int width) {
  Layer layer;
  layer.name = std::move(name);
  layer.kind = kind;
  layer.in = layer.out = width;
  return layer;
}

Layer linear(std::string name, int in, int out, bool bias = true) {
  Layer layer;
  layer.name = std::move(name);
  layer.in = in;
  layer.out = out;
  layer.bias = bias;
  return layer;
}

LayerKind norm_of(const TransformerShape& shape) {
  return shape.style == TransformerStyle::Llama ? LayerKind::RmsNorm : LayerKind::LayerNorm;
}

std::vector<Layer> gated(int width, int ffn) {
  Layer swiglu = same_width("swiglu", LayerKind::Swiglu, 2 * ffn);
  swiglu.out = ffn;
  return {linear("gate and up", width, 2 * ffn, false), std::move(swiglu),
          linear("down", ffn, width, false)};
}

Layer mixture_of_experts(const TransformerShape& shape) {
  Layer layer = same_width("experts", LayerKind::MixtureOfExperts, shape.hidden);
  layer.choice = shape.choice;
  layer.bias = false;
  layer.inner = gated(shape.hidden, shape.ffn);
  if (shape.shared_ffn > 0) layer.shared = gated(shape.hidden, shape.shared_ffn);
  return layer;
}

std::vector<Layer> feed_forward_of(const TransformerShape& shape) {
  const int width = shape.hidden;
  if (shape.style == TransformerStyle::Llama) {
    std::vector<Layer> layers{same_width("norm", LayerKind::RmsNorm, width)};
    if (shape.has_experts()) {
      layers.push_back(mixture_of_experts(shape));
    } else {
      for (Layer& layer : gated(width, shape.ffn)) layers.push_back(std::move(layer));
    }
    return layers;
  }
  return {same_width("norm", LayerKind::LayerNorm, width), linear("up", width, shape.ffn),
          same_width("gelu", LayerKind::Gelu, shape.ffn), linear("down", shape.ffn, width)};
}

Layer block(int number, const TransformerShape& shape) {
  const int width = shape.hidden;
  Layer attention = same_width("attention", LayerKind::CausalSelfAttention, width);
  attention.heads = shape.heads;
  if (shape.style == TransformerStyle::Llama) {
    attention.kv_heads = shape.kv_heads;
    attention.rotary_base = shape.rotary_base;
    attention.bias = false;
  }
  Layer attend = layer_group("attend", LayerKind::Residual,
                             {same_width("norm", norm_of(shape), width), std::move(attention)});
  Layer feed_forward = layer_group("feed forward", LayerKind::Residual, feed_forward_of(shape));
  return layer_group("block " + std::to_string(number), LayerKind::Sequential,
                     {std::move(attend), std::move(feed_forward)});
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
  Layer logits = linear("logits", shape.hidden, shape.vocabulary, false);
  logits.tied = shape.tied_head;
  layers.push_back(
      layer_group("head", LayerKind::Sequential,
                  {same_width("norm", norm_of(shape), shape.hidden), std::move(logits)}));
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
  const Layer& last_of_block = first.inner[1].inner.back();
  if (last_of_block.kind == LayerKind::MixtureOfExperts) {
    shape.choice = last_of_block.choice;
    shape.ffn = last_of_block.inner.back().in;
    if (!last_of_block.shared.empty()) shape.shared_ffn = last_of_block.shared.back().in;
  } else {
    shape.ffn = last_of_block.in;
  }
  if (attention.rotary_base > 0) {
    shape.style = TransformerStyle::Llama;
    shape.kv_heads = attention.kv_heads;
    shape.rotary_base = attention.rotary_base;
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
