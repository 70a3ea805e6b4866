// The models that can be named instead of written down.
#include "core/error.hpp"
#include "core/model.hpp"
#include "core/model_transformer.hpp"
#include "core/suggest.hpp"

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

/// Table 2.1 of "Language Models are Few-Shot Learners"; vocabulary padded as Megatron-LM does.
Model gpt3_175b() { return transformer("gpt3-175b", {12288, 96, 96, 4 * 12288, 51200, 2048}, 2); }

}  // namespace

std::vector<std::string_view> model_preset_names() { return {"mlp", "gpt-tiny", "gpt3-175b"}; }

Model model_preset(std::string_view name) {
  if (name == "mlp") {
    return mlp();
  }
  if (name == "gpt-tiny") {
    return gpt_tiny();
  }
  if (name == "gpt3-175b") {
    return gpt3_175b();
  }
  throw InputError("unknown model preset \"" + std::string(name) + "\"" +
                   did_you_mean(name, model_preset_names()) +
                   "; the presets are mlp, gpt-tiny and gpt3-175b");
}

}  // namespace pipewright
