#include "core/model/model.hpp"

#include <gtest/gtest.h>

#include "core/model/architecture.hpp"
#include "core/model/transformer.hpp"
#include "core/model/weights.hpp"
#include "exec/layers/footprint.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace model_test {

using test::refusal;

Model read(const std::string& text) {
  const Json document = parse_json(text, "m.json");
  return read_model(JsonCursor(document, "m.json"));
}

std::string layers(const std::string& list, const std::string& loss = "mse") {
  return R"({"schema": "pipewright.model/1", "layers": [)" + list + R"(], "loss": ")" + loss +
         "\"}";
}

InputError refused(const std::string& text) {
  return refusal([&] { read(text); });
}

std::int64_t parameters(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers) {
    sum += static_cast<std::int64_t>(parameter_count(layer));
  }
  return sum;
}

TEST(ModelPresets, MlpHasTheSizesOfPaddlesGuide) {
  const Model model = model_preset("mlp");
  ASSERT_EQ(model.layers.size(), 3U);
  EXPECT_EQ(model.layers[0].in, 1024);
  EXPECT_EQ(model.layers[0].out, 4096);
  EXPECT_EQ(model.layers[1].kind, LayerKind::Relu);
  EXPECT_EQ(model.layers[2].out, 1024);
  EXPECT_EQ(model.loss, LossKind::Mse);
}

TEST(ModelPresets, GptTinyIsByteLevelAndCanBeCutInFour) {
  const Model model = model_preset("gpt-tiny");
  EXPECT_EQ(model.layers.front().vocabulary, 256);
  EXPECT_EQ(model.layers.back().out, 256);
  EXPECT_GE(model.layers.size(), 4U);
  EXPECT_EQ(model.layers.front().positions, model.sequence);
}

TEST(ModelPresets, Gpt3HasItsParameters) {
  // h = 12288. Embedding (51200 + 2048) h = 654,311,424. A block: attention 4h^2 + 4h, two norms
  // 4h, feed forward 8h^2 + 5h, so 12h^2 + 13h = 1,812,099,072; 96 of them 173,961,510,912.
  // Head: norm 2h, and 51200 h of its own: 629,170,176.
  EXPECT_EQ(parameters(model_preset("gpt3-175b")), 175'244'992'512);
}

/// Llama 3 8B has 8,030,261,248 (arXiv 2407.21783, table 3, and the published weights).
TEST(TransformerStyle, LlamaHasTheParametersOfThePublishedModel) {
  const Json json = parse_json(R"({"schema": "pipewright.model/1", "transformer": {
      "style": "llama", "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336,
      "vocabulary": 128256, "sequence": 8192, "rotary_base": 500000}})",
                               "llama");
  const Model model = read_model(JsonCursor(json, "llama"));
  EXPECT_EQ(parameters(model), 8'030'261'248);
  const Json written = to_json(model);
  EXPECT_TRUE(written.contains("transformer")) << "it is still known to be one";
  EXPECT_EQ(read_model(JsonCursor(written, "written")).layers, model.layers);
}

TEST(TransformerStyle, WhatDoesNotFitIsSaidWithItsPlace) {
  const auto refused_shape = [](const std::string& more) {
    return refused(R"({"schema": "pipewright.model/1", "transformer": {"hidden": 12, "layers": 1,
                       "heads": 4, "vocabulary": 9, "sequence": 5, )" +
                   more + "}}");
  };
  EXPECT_EQ(refused_shape(R"("style": "llama", "kv_heads": 3)").pointer(), "/transformer/kv_heads");
  EXPECT_EQ(refused_shape(R"("style": "llama")").message(),
            "expected a number of heads that have an even width each, for rotary positions turn "
            "pairs of numbers, found 4");
  EXPECT_EQ(refused_shape(R"("kv_heads": 2)").pointer(), "/transformer/kv_heads");
  EXPECT_EQ(refused_shape(R"("style": "bert")").pointer(), "/transformer/style");
  EXPECT_EQ(refused(layers(R"({"kind": "swiglu", "in": 5})")).pointer(), "/layers/0");
}

/// The technical report counts 671 billion (arXiv 2412.19437); the architecture that is estimated
/// and the layers that are trained are the same.
TEST(LatentAttention, DeepSeekHasTheParametersOfThePublishedModel) {
  const Json json = parse_json(R"({"schema": "pipewright.model/1", "transformer": {
      "style": "llama", "hidden": 7168, "layers": 61, "heads": 128, "ffn": 2048,
      "vocabulary": 129280, "sequence": 4096, "experts": 256, "top_k": 8, "scoring": "sigmoid",
      "groups": 8, "top_groups": 4, "scaling": 2.5, "balance_rate": 0.001, "shared_ffn": 2048,
      "dense_layers": 3, "dense_ffn": 18432,
      "latent_attention": {"query_rank": 1536, "key_value_rank": 512, "plain": 128, "rotary": 64,
                           "value": 128}}})",
                               "deepseek");
  const Model model = read_model(JsonCursor(json, "deepseek"));
  EXPECT_EQ(parameters(model), 671'026'404'352);
  EXPECT_EQ(static_cast<double>(parameters(model)), parameters(architecture_preset("deepseek-v3")));
  const Json written = to_json(model);
  EXPECT_TRUE(written.contains("transformer")) << "it is still known to be one";
  EXPECT_EQ(read_model(JsonCursor(written, "written")).layers, model.layers);
}

TEST(LatentAttention, WhatDoesNotFitIsSaidWithItsPlace) {
  const auto in_layer = [](const std::string& widths) {
    return refused(
        layers(R"({"kind": "latent_attention", "in": 6, "heads": 4, "widths": {)" + widths + "}}"));
  };
  EXPECT_EQ(in_layer(R"("plain": 2, "rotary": 2, "value": 2)").pointer(), "/layers/0/widths");
  EXPECT_EQ(in_layer(R"("key_value_rank": 2, "plain": 2, "rotary": 3, "value": 2)").message(),
            "expected an even width, for rotary positions turn pairs of numbers, found 3");
  EXPECT_EQ(
      in_layer(R"("key_value_rank": 2, "plain": 262000, "rotary": 2, "value": 200)").pointer(),
      "/layers/0/widths");
  const auto in_shape = [](const std::string& more) {
    return refused(R"({"schema": "pipewright.model/1", "transformer": {"hidden": 10, "layers": 2,
        "heads": 4, "vocabulary": 9, "sequence": 5, "style": "llama", )" +
                   more + "}}");
  };
  const std::string latent =
      R"("latent_attention": {"key_value_rank": 2, "plain": 2, "rotary": 2, "value": 2}, )";
  EXPECT_EQ(in_shape(latent + R"("kv_heads": 2)").message(),
            "expected no such key beside \"latent_attention\", in which each head has its own "
            "keys, found 2");
  EXPECT_EQ(in_shape(latent + R"("dense_layers": 1)").pointer(), "/transformer/dense_layers")
      << "there are no experts";
  EXPECT_EQ(in_shape(latent + R"("experts": 2, "top_k": 1, "dense_layers": 2)").message(),
            "expected a whole number from 0 to 1, found 2");
  EXPECT_EQ(in_shape(latent + R"("experts": 2, "top_k": 1, "dense_layers": 1)").pointer(),
            "/transformer")
      << "how wide?";
  EXPECT_EQ(in_shape(latent + R"("experts": 2, "top_k": 1, "dense_ffn": 8)").pointer(),
            "/transformer/dense_ffn");
}

/// By the formulas of docs/metrics.md: 2 samples of 3 rows.
TEST(Footprint, OfLatentAttentionCountsItsNarrowLayersAndItsHeads) {
  const int w = 10, h = 3, q = 4, c = 5, p = 2, r = 6, v = 7, rows = 6, square = 3 * rows;
  Model model = read(layers(R"({"kind": "latent_attention", "in": 10, "heads": 3, "widths":
      {"query_rank": 4, "key_value_rank": 5, "plain": 2, "rotary": 6, "value": 7}})"));
  model.sequence = 3;
  const int matrices = w * (q + c + r) + q * h * (p + r) + c * h * (p + v) + h * v * w;
  EXPECT_EQ(parameters(model), matrices + q + c);
  const exec::LayerFootprint one = exec::footprint(model.layers[0], model, 2);
  const int turns = 3 * rows * r * (h + 1), pairs = square * h * (p + r + v);
  EXPECT_EQ(one.forward_flops,
            2 * rows * matrices + 4 * rows * (q + c) + 2 * pairs + 6 * square * h + turns);
  EXPECT_EQ(one.input_gradient_flops, 2 * rows * matrices + 7 * rows * (q + c) + 4 * pairs +
                                          4 * square * h + rows * h * r + turns + 2 * rows * w);
  EXPECT_EQ(one.weight_gradient_flops, 2 * rows * matrices + 3 * rows * (q + c));
}

/// Mixtral 8x7B has 46,702,792,704 (arXiv 2401.04088 says 47B; the published weights).
TEST(Mixtures, MixtralHasTheParametersOfThePublishedModel) {
  const Json json = parse_json(R"({"schema": "pipewright.model/1", "transformer": {
      "style": "llama", "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336,
      "vocabulary": 32000, "sequence": 32768, "rotary_base": 1000000, "experts": 8, "top_k": 2,
      "balance_loss": 0.02}})",
                               "mixtral");
  const Model model = read_model(JsonCursor(json, "mixtral"));
  EXPECT_EQ(parameters(model), 46'702'792'704);
  const Json written = to_json(model);
  EXPECT_TRUE(written.contains("transformer")) << "it is still known to be one";
  EXPECT_EQ(read_model(JsonCursor(written, "written")).layers, model.layers);
}

TEST(Mixtures, LayerByLayerTheyComeBackAsWritten) {
  const Model model = read(layers(R"({"kind": "mixture_of_experts", "in": 6, "experts": 4,
      "top_k": 2, "normalised": false, "capacity_factor": 1.25, "balance_loss": 0.01,
      "z_loss": 0.001, "router_bias": true, "scoring": "sigmoid", "groups": 2, "top_groups": 1,
      "scaling": 2.5, "balance_rate": 0.001,
      "layers": [{"kind": "linear", "out": 5}, {"kind": "gelu"}, {"kind": "linear", "out": 3}],
      "shared": [{"kind": "linear", "out": 3}]})"));
  EXPECT_EQ(model.layers[0].out, 3);
  // The router 6 * 4 + 4, four experts of 6 * 5 + 5 + 5 * 3 + 3, and 6 * 3 + 3 for all.
  EXPECT_EQ(parameters(model), 28 + 4 * 53 + 21);
  const Json written = to_json(model);
  EXPECT_EQ(read_model(JsonCursor(written, "written")).layers, model.layers);
}

TEST(Mixtures, WhatDoesNotFitIsSaidWithItsPlace) {
  const auto refused_mixture = [](const std::string& more, const std::string& inner) {
    return refused(layers(R"({"kind": "mixture_of_experts", "in": 6, "layers": [)" + inner + "], " +
                          more + "}"));
  };
  const std::string linear = R"({"kind": "linear", "out": 6})";
  const auto with = [&](const std::string& more) { return refused_mixture(more, linear); };
  EXPECT_EQ(with(R"("experts": 4, "top_k": 5)").pointer(), "/layers/0/top_k");
  EXPECT_EQ(with(R"("experts": 4, "top_k": 5)").message(),
            "expected a whole number from 1 to 4, found 5");
  EXPECT_EQ(with(R"("experts": 5000, "top_k": 5)").pointer(), "/layers/0/experts");
  EXPECT_EQ(with(R"("experts": 4, "top_k": 2, "capacity_factor": 0)").message(),
            "expected a factor above 0, such as 1.25; leave it out to drop nothing, found 0");
  EXPECT_EQ(with(R"("experts": 4, "top_k": 2, "balance_loss": -1)").pointer(),
            "/layers/0/balance_loss");
  EXPECT_NE(with(R"("experts": 4, "top_k": 2, "zloss": 1)").message().find("z_loss"),
            std::string::npos);
  EXPECT_EQ(with(R"("experts": 4, "top_k": 2, "shared": [{"kind": "linear", "out": 5}])").message(),
            "expected a last layer as wide as that of an expert, to which it is added; they are 5 "
            "and 6 numbers wide");
  EXPECT_EQ(with(R"("experts": 6, "top_k": 2, "groups": 4)").message(),
            "expected a number that divides experts = 6 into groups of two or more, found 4");
  EXPECT_EQ(with(R"("experts": 6, "top_k": 2, "groups": 6)").pointer(), "/layers/0/groups");
  EXPECT_EQ(with(R"("experts": 6, "top_k": 4, "groups": 3, "top_groups": 1)").message(),
            "expected groups enough for top_k = 4 experts, which are 2, found 1");
  EXPECT_EQ(with(R"("experts": 6, "top_k": 4, "top_groups": 1)").pointer(), "/layers/0/top_groups");
  EXPECT_EQ(with(R"("experts": 6, "top_k": 4, "scoring": "sigmoyd")").message(),
            "expected one of \"softmax\", \"sigmoid\" (did you mean \"sigmoid\"?), found "
            "\"sigmoyd\"");
  const InputError nested =
      refused_mixture(R"("experts": 4, "top_k": 2)", linear + R"(, {"kind": "layer_norm"})");
  EXPECT_EQ(nested.pointer(), "/layers/0/layers/1/kind");
  EXPECT_EQ(nested.message(),
            "an expert consists of layers of kind linear (not tied), relu, gelu and swiglu, found "
            "layer_norm");
  const auto shape = [](const std::string& more) {
    return refused(R"({"schema": "pipewright.model/1", "transformer": {"hidden": 12, "layers": 1,
                       "heads": 2, "vocabulary": 9, "sequence": 5, )" +
                   more + "}}");
  };
  EXPECT_EQ(shape(R"("experts": 4)").message(),
            "expected no such key without \"style\": \"llama\", "
            "found 4");
  EXPECT_EQ(shape(R"("style": "llama", "top_k": 2)").pointer(), "/transformer/top_k");
  EXPECT_EQ(shape(R"("style": "llama", "experts": 4, "top_k": 0)").pointer(), "/transformer/top_k");
}

/// 2 samples of 1 row: 4 pairs of rows and experts; swiglu 5 and 11 a number.
TEST(Footprint, OfAMixtureCountsRowsThatComeEvenly) {
  Model model = read(layers(R"({"kind": "mixture_of_experts", "in": 6, "experts": 4, "top_k": 2,
      "layers": [{"kind": "linear", "out": 8, "bias": false}, {"kind": "swiglu"},
                 {"kind": "linear", "out": 6, "bias": false}]})"));
  const exec::LayerFootprint one = exec::footprint(model.layers[0], model, 2);
  const double router = 2 * 2 * 6 * 4, experts = 2 * 4 * (6 * 8 + 4 * 6);
  EXPECT_EQ(one.forward_flops, router + 5 * 2 * 4 + experts + 5 * 4 * 4 + 2 * 4 * 6);
  EXPECT_EQ(one.input_gradient_flops,
            router + 11 * 2 * 4 + experts + 11 * 4 * 4 + (3 + 1) * 4 * 6 + 2 * 6);
  EXPECT_EQ(one.weight_gradient_flops, router + experts);
  model.layers[0].choice.capacity_factor = 0.5;  // one row an expert of one sample: two of them
  model.layers[0].choice.top_k = 4;
  EXPECT_EQ(exec::footprint(model.layers[0], model, 1).weight_gradient_flops,
            2 * 6 * 4 + 2 * 4 * (6 * 8 + 4 * 6));
}

TEST(ModelPresets, UnknownOnesGetASuggestion) {
  EXPECT_EQ(refusal([] { model_preset("gpt-tny"); }).message(),
            "unknown model preset \"gpt-tny\" (did you mean \"gpt-tiny\"?); the presets are mlp, "
            "gpt-tiny, llama-tiny, mixtral-tiny, deepseek-tiny, gpt3-175b, resnet50, "
            "resnet50-small, resnet-tiny");
}

TEST(Footprint, Linear) {
  // 2 samples of 1 row, 1024 -> 4096, 4 bytes: a product is 2 * 2 * 1024 * 4096 = 16,777,216
  // operations; the bias is added to 2 * 4096 elements, and its gradient sums as many.
  const Model model = model_preset("mlp");
  const exec::LayerFootprint one = exec::footprint(model.layers[0], model, 2);
  EXPECT_EQ(one.parameters, 1024 * 4096 + 4096);
  EXPECT_EQ(one.forward_flops, 16'777'216 + 8192);
  EXPECT_EQ(one.input_gradient_flops, 16'777'216);
  EXPECT_EQ(one.weight_gradient_flops, 16'777'216 + 8192);
  EXPECT_EQ(one.output_bytes, 2 * 4096 * 4);
}

TEST(Footprint, Attention) {
  // width 6, 3 heads, 4 rows a sample, 2 samples: 8 rows, 8 * 3 * 4 = 96 probabilities.
  Model model = read(layers(R"({"kind": "causal_self_attention", "in": 6, "heads": 3})"));
  model.sequence = 4;
  const exec::LayerFootprint one = exec::footprint(model.layers[0], model, 2);
  EXPECT_EQ(one.parameters, 4 * 36 + 4 * 6);
  // Projections 4 * 2 * 8 * 36 = 2304; scores and their use 2 * 2 * 8 * 4 * 6 = 768; softmax
  // 5 * 96 = 480; biases 4 * 8 * 6 = 192.
  EXPECT_EQ(one.forward_flops, 2304 + 768 + 480 + 192);
  EXPECT_EQ(one.input_gradient_flops, 2304 + 2 * 768 + 4 * 96);
  EXPECT_EQ(one.weight_gradient_flops, 2304 + 192);
}

TEST(Footprint, GroupsAreSumsAndAResidualAddsOnce) {
  const Model model = read(layers(R"({"kind": "residual", "layers": [
      {"kind": "layer_norm", "in": 5}, {"kind": "linear", "out": 5}]})"));
  const Layer& group = model.layers[0];
  const exec::LayerFootprint sum = exec::footprint(group, model, 3);
  const exec::LayerFootprint norm = exec::footprint(group.inner[0], model, 3);
  const exec::LayerFootprint linear = exec::footprint(group.inner[1], model, 3);
  EXPECT_EQ(sum.parameters, norm.parameters + linear.parameters);
  EXPECT_EQ(sum.forward_flops, norm.forward_flops + linear.forward_flops + 15);
  EXPECT_EQ(sum.weight_gradient_flops, norm.weight_gradient_flops + linear.weight_gradient_flops);
  EXPECT_EQ(sum.output_bytes, 3 * 5 * 4);
}

TEST(Footprint, SizesStopAtOnePebibyte) {
  Model model = model_preset("gpt3-175b");
  const exec::LayerFootprint block = exec::footprint(model.layers[1], model, 1 << 30);
  EXPECT_EQ(block.output_bytes, std::int64_t{1} << 50);
  EXPECT_GT(block.forward_flops, 1e21);
}

TEST(ReadModel, WidthsAreTakenFromTheLayerBefore) {
  const Model model = read(layers(R"({"kind": "linear", "in": 3, "out": 5}, {"kind": "relu"},
      {"kind": "sequential", "layers": [{"kind": "gelu"}, {"kind": "linear", "out": 2}]})"));
  EXPECT_EQ(model.layers[1].in, 5);
  EXPECT_EQ(model.layers[2].in, 5);
  EXPECT_EQ(model.layers[2].out, 2);
  EXPECT_EQ(model.layers[1].name, "layer 1");
}

TEST(ReadModel, TransformerShorthandHasItsShape) {
  const Model model = read(R"({"schema": "pipewright.model/1", "transformer": {"hidden": 8,
      "layers": 2, "heads": 2, "vocabulary": 32, "sequence": 4}})");
  ASSERT_EQ(model.layers.size(), 4U);
  EXPECT_EQ(model.layers[1].name, "block 0");
  EXPECT_EQ(model.layers[1].inner[1].inner[1].out, 32) << "ffn is 4 * hidden";
  EXPECT_EQ(transformer_shape_of(model)->heads, 2);
  Model other = model;
  other.layers[2].inner[0].name = "renamed";
  EXPECT_FALSE(transformer_shape_of(other).has_value());
  EXPECT_TRUE(to_json(other).contains("layers"));
}

TEST(ReadModel, ChainsThatDoNotFitAreRefusedAtTheirPlace) {
  const auto pointer = [](const std::string& list) { return refused(layers(list)).pointer(); };
  EXPECT_EQ(pointer(R"({"kind": "linear", "in": 3, "out": 5}, {"kind": "relu", "in": 4})"),
            "/layers/1/in");
  EXPECT_EQ(pointer(R"({"kind": "relu"})"), "/layers/0");
  EXPECT_EQ(pointer(R"({"kind": "relu", "in": 4}, {"kind": "embedding", "out": 4,
                        "vocabulary": 9})"),
            "/layers/1/kind");
  EXPECT_EQ(pointer(R"({"kind": "causal_self_attention", "in": 6, "heads": 4})"),
            "/layers/0/heads");
  EXPECT_EQ(pointer(R"({"kind": "residual", "layers": [{"kind": "linear", "in": 3, "out": 4}]})"),
            "/layers/0/layers");
  EXPECT_EQ(pointer(R"({"kind": "residual", "layers": [
                        {"kind": "embedding", "out": 1, "vocabulary": 4}]})"),
            "/layers/0/layers");
  EXPECT_EQ(pointer(R"({"kind": "sequential", "layers": []})"), "/layers/0/layers");
  EXPECT_EQ(pointer(""), "/layers");
}

TEST(ReadModel, WhatOnlyTheWholeModelShows) {
  EXPECT_EQ(refused(layers(R"({"kind": "embedding", "out": 4, "vocabulary": 9},
                              {"kind": "linear", "out": 8})",
                           "softmax_cross_entropy"))
                .message(),
            "expected a last layer as wide as the vocabulary (9), found 8");
  EXPECT_EQ(refused(R"({"schema": "pipewright.model/1", "sequence": 5, "loss": "mse", "layers": [
                        {"kind": "embedding", "out": 4, "vocabulary": 9, "positions": 4}]})")
                .pointer(),
            "/sequence");
}

TEST(ReadModel, MessagesSayWhatToDo) {
  EXPECT_STREQ(refused(layers(R"({"kind": "linaer", "in": 1, "out": 1})")).what(),
               "m.json: /layers/0/kind: expected one of \"linear\", \"relu\", \"gelu\", "
               "\"layer_norm\", \"causal_self_attention\", \"embedding\", \"residual\", "
               "\"sequential\", \"conv2d\", \"batch_norm\", \"max_pool\", \"average_pool\", "
               "\"global_average_pool\", \"graph\", \"add\", \"concat\", \"custom\", \"rms_norm\", "
               "\"swiglu\", \"mixture_of_experts\", \"latent_attention\" (did you mean "
               "\"linear\"?), found \"linaer\"");
  EXPECT_EQ(refused(R"({"schema": "pipewright.model/1", "transfomer": {}})").message(),
            "unknown key (did you mean \"transformer\"?); the keys here are schema name preset "
            "transformer layers loss sequence bytes_per_element");
  EXPECT_EQ(refused(R"({"schema": "pipewright.model/1"})").message(),
            "expected one of \"preset\", \"transformer\" and \"layers\"; add it");
  EXPECT_EQ(refused(R"({"schema": "pipewright.model/1", "preset": "mlp", "bytes_per_element": 3})")
                .message(),
            "expected 1, 2, 4 or 8, found 3");
}

}  // namespace model_test
}  // namespace pipewright
