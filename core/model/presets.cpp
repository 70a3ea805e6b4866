// The models that can be named instead of written down.
#include <array>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/model/model.hpp"
#include "core/model/resnet.hpp"
#include "core/model/transformer.hpp"

namespace pipewright {

namespace {

/// The two-layer perceptron of Paddle's auto-parallel guide: 1024 -> 4096 -> 1024.
Model mlp() {
  Model model;
  model.name = "mlp";
  model.loss = LossKind::Mse;
  Layer up{"up", LayerKind::Linear, 1024, 4096};
  Layer relu{"relu", LayerKind::Relu, 4096, 4096};
  Layer down{"down", LayerKind::Linear, 4096, 1024};
  model.layers = {std::move(up), std::move(relu), std::move(down)};
  return model;
}

Model transformer(std::string name, const TransformerShape& shape, int bytes_per_element) {
  Model model;
  model.name = std::move(name);
  model.layers = expand(shape);
  model.sequence = shape.sequence;
  model.bytes_per_element = bytes_per_element;
  return model;
}

/// Byte level, so that any file is training data. One step of 16 sequences is 1.6e9 operations:
/// hundreds of steps take seconds on one core, and four blocks can be cut into four stages.
Model gpt_tiny() { return transformer("gpt-tiny", {64, 4, 4, 256, 256, 64}, 4); }

/// The same size in Llama's style.
Model llama_tiny() {
  TransformerShape shape{64, 4, 4, 176, 256, 64};
  shape.style = TransformerStyle::Llama;
  shape.kv_heads = 2;
  return transformer("llama-tiny", shape, 4);
}

/// The same with eight experts of half that width, of which two serve a token, as in Mixtral (arXiv
/// 2401.04088), whose published configuration has this coefficient.
Model mixtral_tiny() {
  TransformerShape shape{64, 4, 4, 88, 256, 64};
  shape.style = TransformerStyle::Llama;
  shape.kv_heads = 2;
  shape.choice = {.experts = 8, .top_k = 2, .balance_loss = 0.02};
  return transformer("mixtral-tiny", shape, 4);
}

/// The size of llama-tiny in the shape of DeepSeek-V3 (arXiv 2412.19437): latent attention, the
/// first block dense, and experts in groups, chosen by sigmoids and balanced by a bias.
Model deepseek_tiny() {
  TransformerShape shape{64, 4, 4, 48, 256, 64};
  shape.style = TransformerStyle::Llama;
  shape.latent = {.query_rank = 32, .key_value_rank = 16, .plain = 16, .rotary = 8, .value = 16};
  shape.choice = {.experts = 8,
                  .top_k = 2,
                  .scores = RouterScores::Sigmoid,
                  .scaling = 2.5,
                  .groups = 4,
                  .top_groups = 2,
                  .balance_rate = 0.001};
  shape.shared_ffn = 48;
  shape.dense_blocks = 1;
  shape.dense_ffn = 176;
  return transformer("deepseek-tiny", shape, 4);
}

/// Table 2.1 of "Language Models are Few-Shot Learners"; vocabulary padded as Megatron-LM does.
Model gpt3_175b() { return transformer("gpt3-175b", {12288, 96, 96, 4 * 12288, 51200, 2048}, 2); }

Model resnet(std::string name, const ResNetShape& shape) {
  Model model;
  model.name = std::move(name);
  model.layers = expand(shape);
  return model;
}

/// The 50 layers for images of 32x32 pixels in ten classes. Such images are too small for a stem of
/// stride 2 and a pool; the pool stays, so that a step takes a CPU a moment.
ResNetShape small_resnet50() {
  ResNetShape shape;
  shape.image = {3, 32, 32};
  shape.classes = 10;
  shape.stem = {3, 1, 1};
  return shape;
}

/// One block a group and few channels: for tests and first steps.
ResNetShape tiny_resnet() {
  ResNetShape shape;
  shape.image = {3, 16, 16};
  shape.classes = 4;
  shape.width = 8;
  shape.stem = {3, 1, 1};
  shape.pools = false;
  shape.blocks = {1, 1, 1, 1};
  return shape;
}

constexpr std::array<std::string_view, 9> kPresets{"mlp",          "gpt-tiny",       "llama-tiny",
                                                   "mixtral-tiny", "deepseek-tiny",  "gpt3-175b",
                                                   "resnet50",     "resnet50-small", "resnet-tiny"};

}  // namespace

std::vector<std::string_view> model_preset_names() { return {kPresets.begin(), kPresets.end()}; }

Model model_preset(std::string_view name) {
  if (name == "mlp") {
    return mlp();
  }
  if (name == "gpt-tiny") {
    return gpt_tiny();
  }
  if (name == "llama-tiny") {
    return llama_tiny();
  }
  if (name == "mixtral-tiny") {
    return mixtral_tiny();
  }
  if (name == "deepseek-tiny") {
    return deepseek_tiny();
  }
  if (name == "gpt3-175b") {
    return gpt3_175b();
  }
  if (name == "resnet50") {
    return resnet("resnet50", {});
  }
  if (name == "resnet50-small") {
    return resnet("resnet50-small", small_resnet50());
  }
  if (name == "resnet-tiny") {
    return resnet("resnet-tiny", tiny_resnet());
  }
  std::string list;
  for (const std::string_view preset : kPresets) {
    list += (list.empty() ? "" : ", ") + std::string(preset);
  }
  throw InputError("unknown model preset \"" + std::string(name) + "\"" +
                   did_you_mean(name, model_preset_names()) + "; the presets are " + list);
}

}  // namespace pipewright
