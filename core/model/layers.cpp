#include "core/model/layers.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/model/custom.hpp"
#include "core/model/experts.hpp"
#include "core/model/graph.hpp"
#include "core/model/image.hpp"
#include "core/model/latent.hpp"

namespace pipewright {

namespace {

constexpr int kMostNested = 16;

struct KindName {
  LayerKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 21> kKinds{
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
     {LayerKind::GlobalAveragePool, "global_average_pool"},
     {LayerKind::Graph, "graph"},
     {LayerKind::Add, "add"},
     {LayerKind::Concat, "concat"},
     {LayerKind::Custom, "custom"},
     {LayerKind::RmsNorm, "rms_norm"},
     {LayerKind::Swiglu, "swiglu"},
     {LayerKind::MixtureOfExperts, "mixture_of_experts"},
     {LayerKind::LatentAttention, "latent_attention"}}};

LayerKind read_kind(const JsonCursor& value) {
  std::vector<std::pair<std::string_view, LayerKind>> choices;
  for (const KindName& known : kKinds) {
    choices.emplace_back(known.name, known.kind);
  }
  return read_choice(value, choices);
}

bool is_group(LayerKind kind) {
  return kind == LayerKind::Residual || kind == LayerKind::Sequential || kind == LayerKind::Graph;
}

std::vector<std::string_view> mixture_keys() {
  std::vector<std::string_view> keys{"name",   "kind",   "inputs",     "in",
                                     "layers", "shared", "router_bias"};
  for (const std::string_view key : expert_choice_keys()) keys.push_back(key);
  return keys;
}

std::vector<std::string_view> keys_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::Linear:
      return {"name", "kind", "inputs", "in", "out", "bias", "tied"};
    case LayerKind::CausalSelfAttention:
      return {"name", "kind", "inputs", "in", "heads", "kv_heads", "rotary_base", "bias"};
    case LayerKind::LatentAttention:
      return {"name", "kind", "inputs", "in", "heads", "widths", "rotary_base"};
    case LayerKind::Embedding:
      return {"name", "kind", "out", "vocabulary", "positions"};
    case LayerKind::Residual:
      return {"name", "kind", "inputs", "layers", "shortcut"};
    case LayerKind::Sequential:
    case LayerKind::Graph:
      return {"name", "kind", "inputs", "layers"};
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::LayerNorm:
    case LayerKind::RmsNorm:
    case LayerKind::Swiglu:
      return {"name", "kind", "inputs", "in"};
    case LayerKind::Add:
    case LayerKind::Concat:
      return {"name", "kind", "inputs"};
    case LayerKind::Custom:
      return custom_keys();
    case LayerKind::MixtureOfExperts:
      return mixture_keys();
    default:
      return image_keys_of(kind);
  }
}

/// What the layer before gives a layer.
struct Front {
  int width = 0;     // 0: not known yet
  ImageShape image;  // without channels: a plain row
};

Front front_of(const Layer& layer) {
  const Layer& first = first_leaf(layer);
  return {first.kind == LayerKind::Embedding ? 0 : layer.in, first.image};
}

/// Reads layers one after the other and holds what the next one has to fit.
class LayerReader {
 public:
  /// `is_graph`: layers may name their inputs; else each has the one before.
  std::vector<Layer> layers(const JsonCursor& list, int depth, bool is_graph) {
    if (depth > kMostNested) {
      list.fail("groups nested at most 16 deep");
    }
    const std::vector<JsonCursor> elements = list.elements();
    if (elements.empty() || elements.size() > static_cast<std::size_t>(kMostLayers)) {
      list.fail("1 to 4096 layers");
    }
    std::vector<Layer> result;
    std::vector<Front> fronts{front_};  // what enters the graph, then what each layer gives
    for (std::size_t k = 0; k < elements.size(); ++k) {
      const JsonCursor& value = elements[k];
      Layer layer;
      layer.kind = read_kind(value.at("kind"));
      value.only(keys_of(layer.kind));
      const std::optional<JsonCursor> name = value.find("name");
      layer.name = name ? read_name(*name) : "layer " + std::to_string(k);
      if (is_graph) {
        layer.inputs = read_inputs(value, result);
        refuse_tokens(value, layer, result);
        front_ = fronts[static_cast<std::size_t>(layer.inputs.front() + 1)];
      } else {
        refuse_inputs(value, layer.kind);
      }
      read_body(value, depth, fronts, layer);
      if (fronts.front().width == 0) fronts.front() = front_of(layer);
      fronts.push_back(front_);
      result.push_back(std::move(layer));
    }
    if (is_graph) require_readers(list, result);
    return result;
  }

 private:
  /// Before the call front_ is what enters the layer, after it what the layer gives.
  void read_body(const JsonCursor& value, int depth, const std::vector<Front>& fronts,
                 Layer& layer) {
    if (is_group(layer.kind)) {
      read_group(value, depth, layer);
    } else if (is_image_layer(layer.kind)) {
      read_image_layer(value, front_.image, front_.width, layer);
      front_.image = layer.image_out;
    } else if (layer.kind == LayerKind::Add || layer.kind == LayerKind::Concat) {
      read_join(value, fronts, layer);
    } else if (layer.kind == LayerKind::Embedding) {
      read_embedding(value, layer);
    } else if (layer.kind == LayerKind::MixtureOfExperts) {
      read_mixture(value, depth, layer);
    } else {
      read_simple(value, layer);
    }
    front_.width = layer.out;
  }

  /// Token ids go into the first embedding and nowhere else.
  static void refuse_tokens(const JsonCursor& value, const Layer& layer,
                            const std::vector<Layer>& before) {
    if (before.empty() || first_leaf(before.front()).kind != LayerKind::Embedding) return;
    if (std::find(layer.inputs.begin(), layer.inputs.end(), kGraphInput) == layer.inputs.end()) {
      return;
    }
    value.at("inputs").fail(
        "layers other than \"input\", which is token ids that only the embedding reads");
  }

  void read_group(const JsonCursor& value, int depth, Layer& result) {
    const JsonCursor list = value.at("layers");
    const Front before = front_;
    result.inner = layers(list, depth + 1, result.kind == LayerKind::Graph);
    result.in = result.inner.front().in;
    result.out = result.inner.back().out;
    if (result.kind == LayerKind::Sequential) return;
    if (before.width == 0 && first_leaf(result.inner.front()).kind == LayerKind::Embedding) {
      list.fail(
          "no embedding as the first layer of a residual or a graph: token ids can neither "
          "be added nor branch");
    }
    if (result.kind == LayerKind::Residual) {
      read_shortcut(value, before.width > 0 ? before : front_of(result.inner.front()), depth,
                    result);
    }
  }

  void read_shortcut(const JsonCursor& value, const Front& before, int depth, Layer& result) {
    const Front behind = std::exchange(front_, before);
    if (const auto shortcut = value.find("shortcut")) {
      result.shortcut = layers(*shortcut, depth + 1, false);
    }
    require_equal(value.at("layers"), behind, front_, result);
    front_ = behind;
  }

  static void require_equal(const JsonCursor& place, const Front& one, const Front& other,
                            const Layer& layer) {
    const bool same_image =
        one.image == other.image || one.image.channels == 0 || other.image.channels == 0;
    if (one.width == other.width && same_image) return;
    throw InputError(
        place.file(), place.pointer(),
        layer.kind == LayerKind::Residual
            ? "expected a last layer as wide as what a residual adds to it, its input or what the "
              "shortcut makes of it, and of the same image; they are " +
                  std::to_string(one.width) + " and " + std::to_string(other.width) +
                  " numbers wide"
            : "expected inputs of the same width and image, because they are added; they are " +
                  std::to_string(one.width) + " and " + std::to_string(other.width) +
                  " numbers wide");
  }

  /// Add and Concat.
  void read_join(const JsonCursor& value, const std::vector<Front>& fronts, Layer& layer) {
    const JsonCursor inputs = value.at("inputs");
    Front sum = front_;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const Front& one = fronts[static_cast<std::size_t>(layer.inputs[k] + 1)];
      if (one.width == 0)
        inputs.fail("layers other than \"input\", whose width no layer has given yet");
      if (k == 0) continue;
      if (layer.kind == LayerKind::Add) {
        require_equal(inputs, sum, one, layer);
      } else {
        sum = joined(inputs, sum, one);
      }
    }
    layer.in = layer.out = sum.width;
    front_ = sum;
  }

  static Front joined(const JsonCursor& inputs, const Front& one, const Front& other) {
    if (other.width > kWidest - one.width)
      inputs.fail("inputs of at most 1048576 numbers together");
    Front both{one.width + other.width, {}};
    if (one.image.channels == 0 || other.image.channels == 0) return both;
    if (one.image.height != other.image.height || one.image.width != other.image.width) {
      inputs.fail("images of the same height and width, because their channels are put together");
    }
    both.image = one.image;
    both.image.channels += other.image.channels;
    return both;
  }

  void read_embedding(const JsonCursor& value, Layer& result) {
    if (front_.width != 0) {
      throw InputError(value.file(), value.pointer() + "/kind",
                       "an embedding reads token ids, so it has to be the first layer; move it");
    }
    result.in = 1;
    front_.image = {};
    result.out = read_count(value.at("out"), 1, kWidest);
    result.vocabulary = read_count(value.at("vocabulary"), 1, kLargestVocabulary);
    if (const auto positions = value.find("positions")) {
      result.positions = read_count(*positions, 0, kLongestSequence);
    }
  }

  int read_width(const JsonCursor& value) const {
    const std::optional<JsonCursor> in = value.find("in");
    if (!in && front_.width == 0) {
      value.at("in");  // the first layer has none before it to take it from
    }
    const int width = in ? read_count(*in, 1, kWidest) : front_.width;
    if (front_.width != 0 && width != front_.width) {
      throw InputError(in->file(), in->pointer(),
                       "expected " + std::to_string(front_.width) +
                           ", the width of the layer before, found " + std::to_string(width));
    }
    return width;
  }

  void read_mixture(const JsonCursor& value, int depth, Layer& result) {
    result.in = read_width(value);
    result.choice = read_expert_choice(value);
    const std::optional<JsonCursor> bias = value.find("router_bias"), shared = value.find("shared");
    result.bias = bias && bias->boolean();
    const Front before{result.in, {}};
    front_ = before;
    const JsonCursor list = value.at("layers");
    result.inner = layers(list, depth + 1, false);
    require_expert_layers(list, result.inner);
    result.out = result.inner.back().out;
    if (shared) {
      front_ = before;
      result.shared = layers(*shared, depth + 1, false);
      if (front_.width != result.out) {
        throw InputError(shared->file(), shared->pointer(),
                         "expected a last layer as wide as that of an expert, to which it is "
                         "added; they are " +
                             std::to_string(front_.width) + " and " + std::to_string(result.out) +
                             " numbers wide");
      }
    }
    front_.image = {};
  }

  void read_simple(const JsonCursor& value, Layer& result) {
    result.in = result.out = read_width(value);
    if (result.kind != LayerKind::Relu && result.kind != LayerKind::Gelu) front_.image = {};
    if (result.kind == LayerKind::Custom) read_custom(value, result);
    if (result.kind == LayerKind::Linear) {
      result.out = read_count(value.at("out"), 1, kWidest);
      const std::optional<JsonCursor> bias = value.find("bias"), tied = value.find("tied");
      result.tied = tied && tied->boolean();
      result.bias = bias ? bias->boolean() : !result.tied;
      if (result.tied && result.bias) bias->fail("false: a tied layer has the table alone");
    }
    if (result.kind == LayerKind::CausalSelfAttention) read_attention(value, result);
    if (result.kind == LayerKind::LatentAttention) read_latent_attention(value, result);
    if (result.kind == LayerKind::Swiglu) {
      if (result.in % 2 != 0) {
        throw InputError(value.file(), value.pointer(),
                         "expected an even width in front of a swiglu, whose first half gates the "
                         "second, found " +
                             std::to_string(result.in));
      }
      result.out = result.in / 2;
    }
  }

  static void read_attention(const JsonCursor& value, Layer& result) {
    const JsonCursor heads = value.at("heads");
    result.heads = read_count(heads, 1, kMostHeads);
    if (result.in % result.heads != 0) {
      heads.fail("a number of heads that divides the width " + std::to_string(result.in));
    }
    read_attention_details(value, result.in / result.heads, result.heads, result.kv_heads,
                           result.rotary_base);
    if (const auto bias = value.find("bias")) result.bias = bias->boolean();
  }

  static void read_latent_attention(const JsonCursor& value, Layer& result) {
    result.bias = false;
    result.heads = read_count(value.at("heads"), 1, kMostHeads);
    result.latent = read_latent_widths_of_layer(value.at("widths"), result.heads);
    result.rotary_base = kRotaryBase;
    read_rotary_base(value, result.rotary_base);
  }

  Front front_;  // of the next layer
};

Json layer_json(const Layer& layer);

void write_mixture(const Layer& layer, Json& json) {
  write_expert_choice(layer.choice, json);
  if (layer.bias) json["router_bias"] = true;
  for (const Layer& one : layer.inner) json["layers"].push_back(layer_json(one));
  for (const Layer& one : layer.shared) json["shared"].push_back(layer_json(one));
}

Json layer_json(const Layer& layer) {
  Json json = {{"name", layer.name}, {"kind", to_string(layer.kind)}};
  if (layer.kind == LayerKind::Add || layer.kind == LayerKind::Concat) return json;
  if (is_group(layer.kind)) {
    Json inner = Json::array();
    for (const Layer& one : layer.inner) {
      inner.push_back(layer_json(one));
      if (layer.kind == LayerKind::Graph) write_inputs(one, layer.inner, inner.back());
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
  if (layer.kind == LayerKind::MixtureOfExperts) write_mixture(layer, json);
  if (layer.kind == LayerKind::Custom) write_custom(layer, json);
  if (layer.kind == LayerKind::Linear) {
    json["out"] = layer.out;
    json["bias"] = layer.bias;
    if (layer.tied) json["tied"] = true;
  }
  if (layer.kind == LayerKind::CausalSelfAttention) {
    json["heads"] = layer.heads;
    if (layer.kv_heads > 0) json["kv_heads"] = layer.kv_heads;
    if (layer.rotary_base > 0) json["rotary_base"] = layer.rotary_base;
    if (!layer.bias) json["bias"] = false;
  }
  if (layer.kind == LayerKind::LatentAttention) {
    json["heads"] = layer.heads;
    json["widths"] = to_json(layer.latent);
    json["rotary_base"] = layer.rotary_base;
  }
  return json;
}

}  // namespace

void read_rotary_base(const JsonCursor& value, double& rotary_base) {
  if (const auto base = value.find("rotary_base")) rotary_base = base->number(1, 1e12);
}

void read_attention_details(const JsonCursor& value, int head_width, int heads, int& kv_heads,
                            double& rotary_base) {
  if (const auto shared = value.find("kv_heads")) {
    kv_heads = read_count(*shared, 1, kMostHeads);
    if (heads % kv_heads != 0) {
      shared->fail("a number of heads that divides heads = " + std::to_string(heads));
    }
    if (kv_heads == heads) kv_heads = 0;
  }
  read_rotary_base(value, rotary_base);
  if (rotary_base > 0 && head_width % 2 != 0) {
    value.at("heads").fail(
        "a number of heads that have an even width each, for rotary positions turn pairs of "
        "numbers");
  }
}

std::vector<Layer> read_layers(const JsonCursor& list) {
  return grouped(LayerReader().layers(list, 0, true));
}

Json to_json(const Layer& layer) { return layer_json(layer); }

Layer layer_of_width(std::string name, LayerKind kind, int width) {
  Layer layer;
  layer.name = std::move(name);
  layer.kind = kind;
  layer.in = layer.out = width;
  return layer;
}

Layer linear_layer(std::string name, int in, int out, bool bias) {
  Layer layer;
  layer.name = std::move(name);
  layer.in = in;
  layer.out = out;
  layer.bias = bias;
  return layer;
}

Layer layer_group(std::string name, LayerKind kind, std::vector<Layer> inner) {
  Layer layer;
  layer.name = std::move(name);
  layer.kind = kind;
  layer.in = inner.front().in;
  layer.out = inner.back().out;
  layer.inner = std::move(inner);
  return layer;
}

const Layer& first_leaf(const Layer& layer) {
  return layer.inner.empty() ? layer : first_leaf(layer.inner.front());
}

std::string_view to_string(LayerKind kind) {
  for (const KindName& known : kKinds) {
    if (known.kind == kind) {
      return known.name;
    }
  }
  throw_bug(__FILE__, __LINE__, "a layer kind has no name");
}

}  // namespace pipewright
