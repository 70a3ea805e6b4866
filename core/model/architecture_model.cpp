#include "core/model/architecture_model.hpp"

#include <cmath>
#include <utility>

#include "core/model/architecture_json.hpp"
#include "core/model/experts.hpp"
#include "core/model/layers.hpp"
#include "core/model/transformer.hpp"

namespace pipewright {

namespace {

/// Multiply and add for each weight that a token meets, and for each pair of tokens the products of
/// scores and values, of which a causal mask leaves half (arXiv:2205.05198, appendix A).
/// Of Mamba, for each number of the state a product to write and one to read it.
double operations_of_row(const Architecture& model, BlockKind kind) {
  const double weights = 2 * active_block_parameters(model, kind);
  if (kind.mixer == Mixer::Mamba) return weights + 4 * model.mamba.inner() * model.mamba.state;
  if (!kind.has_attention()) return weights;
  const bool latent = model.latent.is_used();
  const double query = latent ? model.latent.query() : model.head;
  const double value = latent ? model.latent.value : model.head;
  return weights + model.heads * (query + value) * 2 * tokens_seen(model, kind.mixer);
}

Layer block_layer(const Architecture& model, int block) {
  Layer layer;
  layer.name = "block " + std::to_string(block);
  layer.kind = LayerKind::Custom;
  layer.in = layer.out = model.hidden;
  const BlockKind kind = model.kind_of(block);
  layer.custom.type = kind.has_experts() ? "transformer-experts" : "transformer-block";
  layer.custom.weights = std::llround(block_parameters(model, kind));
  layer.custom.operations = operations_of_row(model, kind);
  return layer;
}

/// The experts as Mixtral chooses them: an architecture says how many, not by which scores.
ExpertChoice choice_of(const Experts& experts) {
  ExpertChoice choice;
  choice.experts = experts.count;
  choice.top_k = experts.chosen;
  return choice;
}

bool is_gpt(const Architecture& model) {
  return !model.gated && model.biases && model.learned_positions &&
         model.key_value_heads == model.heads && model.head * model.heads == model.hidden &&
         model.experts.count == 0 && !model.latent.is_used();
}

/// Rotary positions turn pairs of numbers.
bool is_llama(const Architecture& model) {
  if (!model.gated || model.biases || model.learned_positions) return false;
  if (model.experts.count > kMostExperts || model.experts.every > 1 || model.experts.latent > 0)
    return false;
  if (model.latent.is_used()) return model.latent.rotary % 2 == 0;
  return model.head * model.heads == model.hidden && model.head % 2 == 0 &&
         model.heads % model.key_value_heads == 0;
}

/// The executor's transformer of the same widths; nullopt if it has none.
std::optional<TransformerShape> shape_of(const Architecture& model) {
  if (!is_gpt(model) && !is_llama(model)) return std::nullopt;
  if (model.window.tokens > 0 || !model.pattern.empty() || model.further_tokens > 0)
    return std::nullopt;
  TransformerShape shape{.hidden = model.hidden,
                         .layers = model.blocks,
                         .heads = model.heads,
                         .ffn = model.ffn,
                         .vocabulary = model.vocabulary,
                         .sequence = model.sequence,
                         .tied_head = model.tied_head};
  if (is_gpt(model)) return shape;
  shape.style = TransformerStyle::Llama;
  shape.latent = model.latent;
  if (!model.latent.is_used()) shape.kv_heads = model.key_value_heads;
  if (model.experts.count > 0) {
    shape.choice = choice_of(model.experts);
    shape.shared_ffn = model.experts.shared_ffn;
    shape.dense_blocks = model.experts.dense_blocks;
    shape.dense_ffn = std::exchange(shape.ffn, model.experts.ffn);
  }
  return shape;
}

}  // namespace

bool can_be_trained(const Architecture& architecture) { return shape_of(architecture).has_value(); }

Model model_of(const Architecture& architecture) {
  Model model;
  model.name = architecture.name;
  model.sequence = architecture.sequence;
  model.bytes_per_element = 2;
  if (const auto shape = shape_of(architecture)) {
    model.layers = expand(*shape);
    return model;
  }
  // The ends are the executor's own in any case.
  model.layers =
      expand({architecture.hidden, architecture.blocks, architecture.heads, architecture.ffn,
              architecture.vocabulary, architecture.sequence, architecture.tied_head});
  if (!architecture.learned_positions) model.layers.front().positions = 0;
  for (int block = 0; block < architecture.blocks; ++block)
    model.layers[static_cast<std::size_t>(block) + 1] = block_layer(architecture, block);
  return model;
}

std::optional<Architecture> architecture_of(const Model& model) {
  const auto shape = transformer_shape_of(model);
  if (!shape || shape->hidden % shape->heads != 0) return std::nullopt;
  Architecture architecture = gpt_architecture(model.name, shape->hidden, shape->layers,
                                               shape->heads, shape->vocabulary, shape->sequence);
  architecture.ffn = shape->ffn;
  architecture.tied_head = shape->tied_head;
  if (shape->style == TransformerStyle::Gpt) return architecture;
  architecture.gated = true;
  architecture.biases = architecture.learned_positions = false;
  architecture.latent = shape->latent;
  if (shape->kv_heads > 0) architecture.key_value_heads = shape->kv_heads;
  if (shape->has_experts()) {
    architecture.experts = {.count = shape->choice.experts,
                            .chosen = shape->choice.top_k,
                            .ffn = shape->ffn,
                            .shared_ffn = shape->shared_ffn,
                            .dense_blocks = shape->dense_blocks};
    if (shape->dense_blocks > 0) architecture.ffn = shape->dense_ffn;
  }
  return architecture;
}

DescribedModel read_described_model(const JsonCursor& document) {
  const auto schema = document.find("schema");
  const bool is_architecture = schema && schema->value().is_string() &&
                               schema->string().rfind("pipewright.architecture/", 0) == 0;
  if (!is_architecture) {
    const bool says_precision = document.find("bytes_per_element") || document.find("preset");
    return {read_model(document), std::nullopt, says_precision};
  }
  const Architecture architecture = read_architecture(document);
  return {model_of(architecture), architecture};
}

Json described_model_json(const Model& model, const std::optional<Architecture>& architecture) {
  return architecture ? to_json(*architecture) : to_json(model);
}

}  // namespace pipewright
