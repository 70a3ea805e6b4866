// model.json: reading, checking that the layers form a chain, and writing.
#include "core/model/model.hpp"

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"
#include "core/model/experts.hpp"
#include "core/model/latent.hpp"
#include "core/model/layers.hpp"
#include "core/model/tie.hpp"
#include "core/model/transformer.hpp"
#include "core/model/weights.hpp"

namespace pipewright {

namespace {

std::vector<std::string_view> expert_keys() {
  std::vector<std::string_view> keys{"shared_ffn", "dense_layers", "dense_ffn"};
  for (const std::string_view key : expert_choice_keys()) keys.push_back(key);
  return keys;
}

std::vector<std::string_view> llama_keys() {
  std::vector<std::string_view> keys = expert_keys();
  for (const std::string_view key : {"kv_heads", "rotary_base", "latent_attention"})
    keys.push_back(key);
  return keys;
}

std::vector<std::string_view> shape_keys() {
  std::vector<std::string_view> keys{"style", "hidden",     "layers",   "heads",
                                     "ffn",   "vocabulary", "sequence", "tied_head"};
  for (const std::string_view key : llama_keys()) keys.push_back(key);
  return keys;
}

void read_experts(const JsonCursor& value, TransformerShape& shape) {
  if (!value.find("experts")) {
    for (const std::string_view key : expert_keys()) {
      if (const auto given = value.find(key)) given->fail("no such key without \"experts\"");
    }
    return;
  }
  shape.choice = read_expert_choice(value);
  if (const auto shared = value.find("shared_ffn"))
    shape.shared_ffn = read_count(*shared, 0, kWidest / 2);
  const auto dense = value.find("dense_layers"), ffn = value.find("dense_ffn");
  if (dense) shape.dense_blocks = read_count(*dense, 0, shape.layers - 1);
  if (shape.dense_blocks > 0) {
    shape.dense_ffn = read_count(value.at("dense_ffn"), 1, kWidest / 2);
  } else if (ffn) {
    ffn->fail("no such key without \"dense_layers\"");
  }
}

void read_llama_attention(const JsonCursor& value, TransformerShape& shape) {
  const auto latent = value.find("latent_attention");
  if (!latent) {
    read_attention_details(value, shape.hidden / shape.heads, shape.heads, shape.kv_heads,
                           shape.rotary_base);
    return;
  }
  if (const auto shared = value.find("kv_heads"))
    shared->fail("no such key beside \"latent_attention\", in which each head has its own keys");
  shape.latent = read_latent_widths_of_layer(*latent, shape.heads);
  read_rotary_base(value, shape.rotary_base);
}

TransformerShape read_shape(const JsonCursor& value) {
  value.only(shape_keys());
  TransformerShape shape;
  if (const auto style = value.find("style")) {
    shape.style = read_choice<TransformerStyle>(
        *style, {{"gpt", TransformerStyle::Gpt}, {"llama", TransformerStyle::Llama}});
  }
  shape.hidden = read_count(value.at("hidden"), 1, kWidest);
  shape.layers = read_count(value.at("layers"), 1, kMostLayers - 2);
  const JsonCursor heads = value.at("heads");
  shape.heads = read_count(heads, 1, kMostHeads);
  if (shape.hidden % shape.heads != 0 && !value.find("latent_attention")) {
    heads.fail("a number of heads that divides hidden = " + std::to_string(shape.hidden));
  }
  if (shape.style == TransformerStyle::Llama) {
    read_llama_attention(value, shape);
    read_experts(value, shape);
  } else {
    for (const std::string_view key : llama_keys()) {
      if (const auto given = value.find(key))
        given->fail("no such key without \"style\": \"llama\"");
    }
  }
  const std::optional<JsonCursor> ffn = value.find("ffn");
  // Llama's gate and the layer that it gates lie side by side.
  const int most_ffn = shape.style == TransformerStyle::Llama ? kWidest / 2 : kWidest;
  if (!ffn && shape.hidden > most_ffn / 4) {
    value.at("hidden").fail("at most " + std::to_string(most_ffn / 4) +
                            " where ffn is left out (it is 4 * hidden)");
  }
  shape.ffn = ffn ? read_count(*ffn, 1, most_ffn) : 4 * shape.hidden;
  // The head is as wide as the vocabulary, so the limit of widths holds for it.
  shape.vocabulary = read_count(value.at("vocabulary"), 1, kWidest);
  shape.sequence = read_count(value.at("sequence"), 1, kLongestSequence);
  if (const auto tied = value.find("tied_head")) shape.tied_head = tied->boolean();
  return shape;
}

/// What only the whole model can show.
void check_model(const JsonCursor& document, const Model& model) {
  const Layer& first = first_leaf(model.layers.front());
  const Layer& last = model.layers.back();
  const auto refuse = [&](const std::string& pointer, const std::string& message) {
    throw InputError(document.file(), document.pointer() + pointer, message);
  };
  if (first.positions > 0 && first.positions < model.sequence) {
    refuse("/sequence", "expected at most " + std::to_string(first.positions) +
                            ", the positions of the embedding, found " +
                            std::to_string(model.sequence));
  }
  if (first.kind == LayerKind::Embedding && model.loss == LossKind::SoftmaxCrossEntropy &&
      last.out != first.vocabulary) {
    refuse("/layers", "expected a last layer as wide as the vocabulary (" +
                          std::to_string(first.vocabulary) + "), found " +
                          std::to_string(last.out));
  }
  double parameters = 0;
  for (const Layer& layer : model.layers) parameters += parameter_count(layer);
  if (parameters > 0x1p50) {
    refuse("", "the model has more than 2^50 parameters; make it smaller");
  }
}

std::string_view loss_name(LossKind loss) {
  return loss == LossKind::Mse ? "mse" : "softmax_cross_entropy";
}

void read_common(const JsonCursor& document, Model& model) {
  if (const auto name = document.find("name")) {
    model.name = read_name(*name);
  }
  if (const auto bytes = document.find("bytes_per_element")) {
    model.bytes_per_element = read_count(*bytes, 1, 8);
    if ((model.bytes_per_element & (model.bytes_per_element - 1)) != 0) {
      bytes->fail("1, 2, 4 or 8");
    }
  }
}

void read_layer_list(const JsonCursor& document, Model& model) {
  const JsonCursor layers = document.at("layers");
  model.layers = read_layers(layers);
  require_tie_fits(layers, model);
  model.loss = read_choice<LossKind>(
      document.at("loss"),
      {{"softmax_cross_entropy", LossKind::SoftmaxCrossEntropy}, {"mse", LossKind::Mse}});
  if (const auto sequence = document.find("sequence")) {
    model.sequence = read_count(*sequence, 1, kLongestSequence);
  }
}

}  // namespace

Model read_model(const JsonCursor& document) {
  require_schema_where_document(document, "model");
  Model model;
  if (const auto preset = document.find("preset")) {
    document.only({"schema", "name", "preset", "bytes_per_element"});
    model = parsed_at(*preset, [&] { return model_preset(preset->string()); });
  } else if (const auto transformer = document.find("transformer")) {
    document.only({"schema", "name", "transformer", "bytes_per_element"});
    const TransformerShape shape = read_shape(*transformer);
    model.name = "transformer";
    model.layers = expand(shape);
    model.sequence = shape.sequence;
  } else {
    document.only({"schema", "name", "preset", "transformer", "layers", "loss", "sequence",
                   "bytes_per_element"});
    if (!document.find("layers")) {
      throw InputError(document.file(), document.pointer(),
                       "expected one of \"preset\", \"transformer\" and \"layers\"; add it");
    }
    model.name = "layers";
    read_layer_list(document, model);
  }
  read_common(document, model);
  check_model(document, model);
  return model;
}

Json to_json(const Model& model) {
  Json json = {{"schema", "pipewright.model/1"}, {"name", model.name}};
  if (const auto shape = transformer_shape_of(model)) {
    json["transformer"] = {{"hidden", shape->hidden},         {"layers", shape->layers},
                           {"heads", shape->heads},           {"ffn", shape->ffn},
                           {"vocabulary", shape->vocabulary}, {"sequence", shape->sequence}};
    if (shape->tied_head) json["transformer"]["tied_head"] = true;
    if (shape->style == TransformerStyle::Llama) {
      json["transformer"]["style"] = to_string(shape->style);
      if (shape->kv_heads > 0) json["transformer"]["kv_heads"] = shape->kv_heads;
      if (shape->rotary_base != kRotaryBase)
        json["transformer"]["rotary_base"] = shape->rotary_base;
      if (shape->latent.is_used()) json["transformer"]["latent_attention"] = to_json(shape->latent);
      if (shape->has_experts()) write_expert_choice(shape->choice, json["transformer"]);
      if (shape->shared_ffn > 0) json["transformer"]["shared_ffn"] = shape->shared_ffn;
      if (shape->dense_blocks > 0) {
        json["transformer"]["dense_layers"] = shape->dense_blocks;
        json["transformer"]["dense_ffn"] = shape->dense_ffn;
      }
    }
  } else {
    Json layers = Json::array();
    for (const Layer& layer : model.layers) {
      layers.push_back(to_json(layer));
    }
    json["layers"] = std::move(layers);
    json["loss"] = loss_name(model.loss);
    json["sequence"] = model.sequence;
  }
  json["bytes_per_element"] = model.bytes_per_element;
  return json;
}

}  // namespace pipewright
