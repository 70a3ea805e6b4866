// What layers keep of a micro-batch, asked of the executor's own layers on a device that counts.
#include "exec/layers/metered_layers.hpp"

#include <gtest/gtest.h>

#include "core/model/image.hpp"
#include "core/model/layers.hpp"

namespace pipewright::exec {
namespace metered_layers_test {

/// Bytes after F and after I, beside the output and the gradient of the input.
struct Kept {
  std::int64_t after_f = 0, after_i = 0;

  bool operator==(const Kept&) const = default;
};

/// Nobody else holds the input; somebody holds the gradient of the output.
Kept kept_by(const Layer& layer, Extent extent, bool recomputes_attention = false) {
  MeteredOps ops(4);
  const auto made = make_metered_layer(layer, extent, ops, recomputes_attention);
  Saved saved = made->new_saved();
  const int width = width_before(layer);
  Kept kept;
  Buffer y = run_now(made->forward(ops.take(extent.words(width == 0 ? 1 : width)), saved));
  const std::int64_t output = y.is_shared() ? 0 : static_cast<std::int64_t>(y.bytes());
  kept.after_f = ops.live_bytes() - output;
  y.reset();
  const Buffer dy = ops.take(extent.words(layer.out));
  Buffer dx = run_now(made->backward_input(dy, saved, true));
  const std::int64_t input = static_cast<std::int64_t>(dx.bytes());
  kept.after_i = ops.live_bytes() - input;
  dx.reset();
  run_now(made->backward_weight(saved));
  EXPECT_EQ(ops.live_bytes(), static_cast<std::int64_t>(dy.bytes())) << "W lets go of the rest";
  return kept;
}

Layer of_kind(LayerKind kind, int in, int out) {
  Layer layer;
  layer.kind = kind;
  layer.in = in;
  layer.out = out;
  return layer;
}

TEST(MeteredLayers, ALinearKeepsItsInputAndThenItsGradient) {
  // 2 samples of 3 rows: 6 · 5 floats, then 6 · 7 besides.
  EXPECT_EQ(kept_by(of_kind(LayerKind::Linear, 5, 7), {2, 3}), (Kept{6 * 5 * 4, 6 * (5 + 7) * 4}));
}

TEST(MeteredLayers, ReluKeepsItsOutputAndGeluItsInputUntilI) {
  EXPECT_EQ(kept_by(of_kind(LayerKind::Relu, 5, 5), {2, 3}), (Kept{6 * 5 * 4, 6 * 5 * 4}));
  EXPECT_EQ(kept_by(of_kind(LayerKind::Gelu, 5, 5), {2, 3}), (Kept{6 * 5 * 4, 6 * 5 * 4}))
      << "after I the gradient alone, which somebody else holds";
}

TEST(MeteredLayers, ALayerNormKeepsTwoNumbersARowBesides) {
  EXPECT_EQ(kept_by(of_kind(LayerKind::LayerNorm, 5, 5), {2, 3}),
            (Kept{6 * (5 + 2) * 4, 6 * (5 + 2 + 5) * 4}));
}

TEST(MeteredLayers, WhatLlamasLayersKeep) {
  EXPECT_EQ(kept_by(of_kind(LayerKind::RmsNorm, 5, 5), {2, 3}),
            (Kept{6 * (5 + 1) * 4, 6 * (5 + 1 + 5) * 4}));
  EXPECT_EQ(kept_by(of_kind(LayerKind::Swiglu, 10, 5), {2, 3}), (Kept{6 * 10 * 4, 6 * 5 * 4}))
      << "after I the gradient of its output alone, which somebody else holds";
  Layer attention = of_kind(LayerKind::CausalSelfAttention, 12, 12);
  attention.heads = 6;
  attention.kv_heads = 2;
  attention.rotary_base = 100;
  attention.bias = false;
  // 8 rows; of keys and values a third.
  EXPECT_EQ(kept_by(attention, {2, 4}),
            (Kept{(8 * (12 + 20 + 12) + 8 * 6 * 4) * 4, 8 * (12 + 12 + 20 + 12) * 4}));
}

TEST(MeteredLayers, AMixtureKeepsEachRowForEachOfItsExperts) {
  Layer up = of_kind(LayerKind::Linear, 5, 8), swiglu = of_kind(LayerKind::Swiglu, 8, 4);
  Layer down = of_kind(LayerKind::Linear, 4, 7);
  Layer mixture = of_kind(LayerKind::MixtureOfExperts, 5, 7);
  mixture.choice = {.experts = 3, .top_k = 2};
  mixture.inner = {up, swiglu, down};
  // 6 rows, 12 pairs. The routes: 3 + 1 and three numbers a pair. F: input, logits, weights, and by
  // pair what comes in, both sides of swiglu, and what comes out. I: input, the logits' gradient,
  // and by pair what goes into both products, and their gradients.
  const int routes = 4 + 3 * 12;
  EXPECT_EQ(kept_by(mixture, {2, 3}),
            (Kept{(6 * (5 + 3) + 12 + routes + 12 * (5 + 8 + 4 + 7)) * 4,
                  (6 * (5 + 3) + routes + 12 * (5 + 4 + 8 + 7) + 6 * 7) * 4}))
      << "and the gradient of the output, which somebody else holds";
}

TEST(MeteredLayers, AttentionKeepsFiveRowsAndTheProbabilities) {
  Layer layer = of_kind(LayerKind::CausalSelfAttention, 6, 6);
  layer.heads = 3;
  // 8 rows, 8 · 3 · 4 probabilities: the input, q, k, v, the context; selective: without the last.
  // After I the input, the context, the gradients of q, k, v and of the output.
  EXPECT_EQ(kept_by(layer, {2, 4}), (Kept{(5 * 48 + 96) * 4, (1 + 1 + 3 + 1) * 48 * 4}));
  EXPECT_EQ(kept_by(layer, {2, 4}, true), (Kept{4 * 48 * 4, (1 + 1 + 3 + 1) * 48 * 4}));
}

TEST(MeteredLayers, LatentAttentionKeepsItsNarrowRowsToo) {
  Layer layer = of_kind(LayerKind::LatentAttention, 10, 10);
  layer.heads = 3;
  layer.latent = {.query_rank = 4, .key_value_rank = 5, .plain = 2, .rotary = 6, .value = 7};
  layer.rotary_base = 100;
  // 8 rows: the input, both narrow rows before and behind their norms with what these keep, and the
  // rotary key; of 3 heads queries (8), keys and values (9), the context (7), and probabilities.
  const int narrow = 2 * 4 + 1 + 2 * 5 + 1, heads = 3 * (8 + 9);
  EXPECT_EQ(kept_by(layer, {2, 4}).after_f,
            (8 * (10 + narrow + 6 + heads + 3 * 7) + 8 * 3 * 4) * 4);
  EXPECT_EQ(kept_by(layer, {2, 4}, true).after_f, 8 * (10 + narrow + 6 + heads) * 4)
      << "selective: without probabilities and context";
  // Of what is narrow the gradients on both sides of the norms besides; those of the rotary key, of
  // queries, keys and values in place of these; and that of the output.
  EXPECT_EQ(kept_by(layer, {2, 4}).after_i,
            8 * (10 + (narrow + 2 * (4 + 5)) + 6 + heads + 3 * 7 + 10) * 4);
}

TEST(MeteredLayers, LayersOfImages) {
  const ImageShape image{4, 5, 5};
  EXPECT_EQ(kept_by(conv2d_layer("", image, 6, {3, 2, 1}, true, 2), {2, 1}),
            (Kept{2 * 100 * 4, 2 * (100 + 54) * 4}));
  // Mean and variance of four channels; after I the two sums of each channel, but not the input.
  EXPECT_EQ(kept_by(batch_norm_layer("", image), {2, 1}), (Kept{(200 + 8) * 4, (200 + 8 + 8) * 4}));
  EXPECT_EQ(kept_by(pool_layer("", LayerKind::MaxPool, image, {3, 2, 1}), {2, 1}),
            (Kept{2 * 36 * 4, 2 * 36 * 4}));
}

TEST(MeteredLayers, NarrowElementsAreNarrowAndIdsAreNot) {
  MeteredOps ops(2);
  EXPECT_EQ(ops.take(10).bytes(), 20U);
  EXPECT_EQ(ops.take_ids(10).bytes(), 40U);
  EXPECT_EQ(ops.live_bytes(), 0);
  EXPECT_EQ(ops.peak_bytes(), 40);
}

/// Graphs and tied heads, too: they have rows that are only counted.
TEST(MeteredLayers, MayHaveMoreRowsThanFitAnInt) {
  const Extent extent{1 << 20, 1 << 12};
  constexpr std::int64_t kRows = std::int64_t{1} << 32;
  Layer head = of_kind(LayerKind::Linear, 2, 3);
  head.tied = true;
  head.bias = false;
  EXPECT_EQ(kept_by(head, extent), (Kept{kRows * 2 * 4, kRows * (2 + 3) * 4}));
  Layer relu = of_kind(LayerKind::Relu, 2, 2), sum = of_kind(LayerKind::Add, 2, 2);
  relu.inputs = {kGraphInput};
  sum.inputs = {kGraphInput, 0};
  Layer graph = of_kind(LayerKind::Graph, 2, 2);
  graph.inner = {relu, sum};
  EXPECT_EQ(kept_by(graph, extent).after_f, kRows * 2 * 4) << "the relu's output";
}

/// A model that no memory holds is asked all the same.
TEST(MeteredLayers, TakeNoMemoryForParameters) {
  const Model model = model_preset("gpt3-175b");
  MeteredOps ops(model.bytes_per_element);
  const auto layers = make_metered_layers(model, 0, static_cast<int>(model.layers.size()),
                                          {1, model.sequence}, ops, {});
  std::vector<Parameter*> parameters;
  for (const auto& layer : layers) layer->collect(parameters);
  std::int64_t sum = 0;
  for (const Parameter* p : parameters) {
    EXPECT_TRUE(p->value.empty());
    sum += p->start.size;
  }
  EXPECT_EQ(sum, 175'244'992'512);
}

}  // namespace metered_layers_test
}  // namespace pipewright::exec
