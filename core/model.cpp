// model.json: reading, checking that the layers form a chain, and writing.
#include "core/model.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/model_image.hpp"
#include "core/model_transformer.hpp"
#include "core/suggest.hpp"

namespace pipewright {

namespace {

constexpr int kWidest = 1 << 20;
constexpr int kMostLayers = 4096;
constexpr int kMostNested = 16;
constexpr int kMostHeads = 65536;
constexpr int kLongestSequence = 1 << 24;
constexpr int kLargestVocabulary = 1 << 24;

struct KindName {
  LayerKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 13> kKinds{
    {{LayerKind::Linear, "linear"},
     {LayerKind::Relu, "relu"},
     {LayerKind::Gelu, "gelu"},
     {LayerKind::LayerNorm, "layer_norm"},
     {LayerKind::CausalSelfAttention, "causal_self_attention"},
     {LayerKind::Embedding, "embedding"},
     {LayerKind::Residual, "residual"},
     {LayerKind::Sequential, "sequential"},
     {LayerKind::Conv2d, "conv2d"},
     {LayerKind::BatchNorm, "batch_norm"},
     {LayerKind::MaxPool, "max_pool"},
     {LayerKind::AveragePool, "average_pool"},
     {LayerKind::GlobalAveragePool, "global_average_pool"}}};

LayerKind read_kind(const JsonCursor& value) {
  std::vector<std::pair<std::string_view, LayerKind>> choices;
  for (const KindName& known : kKinds) {
    choices.emplace_back(known.name, known.kind);
  }
  return read_choice(value, choices);
}

bool is_group(LayerKind kind) {
  return kind == LayerKind::Residual || kind == LayerKind::Sequential;
}

std::vector<std::string_view> keys_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::Linear:
      return {"name", "kind", "in", "out", "bias"};
    case LayerKind::CausalSelfAttention:
      return {"name", "kind", "in", "heads"};
    case LayerKind::Embedding:
      return {"name", "kind", "out", "vocabulary", "positions"};
    case LayerKind::Residual:
      return {"name", "kind", "layers", "shortcut"};
    case LayerKind::Sequential:
      return {"name", "kind", "layers"};
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::LayerNorm:
      return {"name", "kind", "in"};
    default:
      return image_keys_of(kind);
  }
}

const Layer& first_leaf(const Layer& layer) {
  return layer.inner.empty() ? layer : first_leaf(layer.inner.front());
}

/// Reads layers one after the other and holds what the next one has to fit.
class ChainReader {
 public:
  std::vector<Layer> layers(const JsonCursor& list, int depth) {
    if (depth > kMostNested) {
      list.fail("groups nested at most 16 deep");
    }
    const std::vector<JsonCursor> elements = list.elements();
    if (elements.empty() || elements.size() > static_cast<std::size_t>(kMostLayers)) {
      list.fail("1 to 4096 layers");
    }
    std::vector<Layer> result;
    for (std::size_t k = 0; k < elements.size(); ++k) {
      result.push_back(layer(elements[k], "layer " + std::to_string(k), depth));
    }
    return result;
  }

 private:
  Layer layer(const JsonCursor& value, const std::string& default_name, int depth) {
    Layer result;
    result.kind = read_kind(value.at("kind"));
    value.only(keys_of(result.kind));
    const std::optional<JsonCursor> name = value.find("name");
    result.name = name ? read_name(*name) : default_name;
    if (is_group(result.kind)) {
      read_group(value, depth, result);
    } else if (is_image_layer(result.kind)) {
      read_image_layer(value, image_, width_, result);
      image_ = result.image_out;
    } else if (result.kind == LayerKind::Embedding) {
      read_embedding(value, result);
    } else {
      read_simple(value, result);
    }
    width_ = result.out;
    return result;
  }

  void read_group(const JsonCursor& value, int depth, Layer& result) {
    const JsonCursor list = value.at("layers");
    const bool first = width_ == 0;
    const ImageShape image_before = image_;
    result.inner = layers(list, depth + 1);
    result.in = result.inner.front().in;
    result.out = result.inner.back().out;
    if (result.kind == LayerKind::Residual && first &&
        result.inner.front().kind == LayerKind::Embedding) {
      list.fail("layers that read activations: token ids cannot be added to their output");
    }
    if (result.kind != LayerKind::Residual) return;
    const ImageShape image_behind = image_;
    width_ = result.in;
    image_ = first ? first_leaf(result.inner.front()).image : image_before;
    if (const auto shortcut = value.find("shortcut"))
      result.shortcut = layers(*shortcut, depth + 1);
    const bool same_image =
        image_ == image_behind || image_.channels == 0 || image_behind.channels == 0;
    if (width_ != result.out || !same_image) {
      throw InputError(list.file(), list.pointer(),
                       "expected a last layer as wide as what a residual adds to it, its input or "
                       "what the shortcut makes of it, and of the same image; they are " +
                           std::to_string(result.out) + " and " + std::to_string(width_) +
                           " numbers wide");
    }
    image_ = image_behind;
  }

  void read_embedding(const JsonCursor& value, Layer& result) {
    if (width_ != 0) {
      throw InputError(value.file(), value.pointer() + "/kind",
                       "an embedding reads token ids, so it has to be the first layer; move it");
    }
    result.in = 1;
    image_ = {};
    result.out = read_count(value.at("out"), 1, kWidest);
    result.vocabulary = read_count(value.at("vocabulary"), 1, kLargestVocabulary);
    if (const auto positions = value.find("positions")) {
      result.positions = read_count(*positions, 0, kLongestSequence);
    }
  }

  void read_simple(const JsonCursor& value, Layer& result) {
    const std::optional<JsonCursor> in = value.find("in");
    if (!in && width_ == 0) {
      value.at("in");  // the first layer has nobody to take it from
    }
    result.in = in ? read_count(*in, 1, kWidest) : width_;
    if (width_ != 0 && result.in != width_) {
      throw InputError(in->file(), in->pointer(),
                       "expected " + std::to_string(width_) +
                           ", the width of the layer before, found " + std::to_string(result.in));
    }
    result.out = result.in;
    if (result.kind != LayerKind::Relu && result.kind != LayerKind::Gelu) image_ = {};
    if (result.kind == LayerKind::Linear) {
      result.out = read_count(value.at("out"), 1, kWidest);
      const std::optional<JsonCursor> bias = value.find("bias");
      result.bias = !bias || bias->boolean();
    }
    if (result.kind == LayerKind::CausalSelfAttention) {
      const JsonCursor heads = value.at("heads");
      result.heads = read_count(heads, 1, kMostHeads);
      if (result.in % result.heads != 0) {
        heads.fail("a number of heads that divides the width " + std::to_string(result.in));
      }
    }
  }

  int width_ = 0;     // of the last layer read; 0: none yet
  ImageShape image_;  // behind it; without channels: a plain row
};

TransformerShape read_shape(const JsonCursor& value) {
  value.only({"hidden", "layers", "heads", "ffn", "vocabulary", "sequence"});
  TransformerShape shape;
  shape.hidden = read_count(value.at("hidden"), 1, kWidest);
  shape.layers = read_count(value.at("layers"), 1, kMostLayers - 2);
  const JsonCursor heads = value.at("heads");
  shape.heads = read_count(heads, 1, kMostHeads);
  if (shape.hidden % shape.heads != 0) {
    heads.fail("a number of heads that divides hidden = " + std::to_string(shape.hidden));
  }
  const std::optional<JsonCursor> ffn = value.find("ffn");
  if (!ffn && shape.hidden > kWidest / 4) {
    value.at("hidden").fail("at most 262144 where ffn is left out (it is 4 * hidden)");
  }
  shape.ffn = ffn ? read_count(*ffn, 1, kWidest) : 4 * shape.hidden;
  // The head is as wide as the vocabulary, so the limit of widths holds for it.
  shape.vocabulary = read_count(value.at("vocabulary"), 1, kWidest);
  shape.sequence = read_count(value.at("sequence"), 1, kLongestSequence);
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
  for (const Layer& layer : model.layers) {
    parameters += static_cast<double>(footprint(layer, model, 1).parameters);
  }
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
  model.layers = ChainReader().layers(document.at("layers"), 0);
  model.loss = read_choice<LossKind>(
      document.at("loss"),
      {{"softmax_cross_entropy", LossKind::SoftmaxCrossEntropy}, {"mse", LossKind::Mse}});
  if (const auto sequence = document.find("sequence")) {
    model.sequence = read_count(*sequence, 1, kLongestSequence);
  }
}

Json layer_json(const Layer& layer) {
  Json json = {{"name", layer.name}, {"kind", to_string(layer.kind)}};
  if (is_group(layer.kind)) {
    Json inner = Json::array();
    for (const Layer& one : layer.inner) {
      inner.push_back(layer_json(one));
    }
    json["layers"] = std::move(inner);
    for (const Layer& one : layer.shortcut) {
      json["shortcut"].push_back(layer_json(one));
    }
    return json;
  }
  if (is_image_layer(layer.kind)) {
    write_image_layer(layer, json);
    return json;
  }
  if (layer.kind == LayerKind::Embedding) {
    json["out"] = layer.out;
    json["vocabulary"] = layer.vocabulary;
    json["positions"] = layer.positions;
    return json;
  }
  json["in"] = layer.in;
  if (layer.kind == LayerKind::Linear) {
    json["out"] = layer.out;
    json["bias"] = layer.bias;
  }
  if (layer.kind == LayerKind::CausalSelfAttention) {
    json["heads"] = layer.heads;
  }
  return json;
}

}  // namespace

std::string_view to_string(LayerKind kind) {
  for (const KindName& known : kKinds) {
    if (known.kind == kind) {
      return known.name;
    }
  }
  throw_bug(__FILE__, __LINE__, "a layer kind has no name");
}

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
  } else {
    Json layers = Json::array();
    for (const Layer& layer : model.layers) {
      layers.push_back(layer_json(layer));
    }
    json["layers"] = std::move(layers);
    json["loss"] = loss_name(model.loss);
    json["sequence"] = model.sequence;
  }
  json["bytes_per_element"] = model.bytes_per_element;
  return json;
}

}  // namespace pipewright
