#include "core/model/recompute.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"

namespace pipewright {
namespace {

using LayerList = std::vector<std::variant<int, std::string>>;

LayerList read_layer_list(const JsonCursor& value) {
  LayerList layers;
  for (const JsonCursor& one : value.elements()) {
    if (one.value().is_string()) {
      layers.emplace_back(one.string());
    } else {
      layers.emplace_back(read_count(one, 0, 1'000'000));
    }
  }
  return layers;
}

Json layers_json(const LayerList& layers) {
  Json list = Json::array();
  for (const auto& which : layers)
    std::visit([&list](const auto& one) { list.push_back(one); }, which);
  return list;
}

std::size_t layer_named(const Model& model, const std::string& name) {
  const auto is_it = [&name](const Layer& layer) { return layer.name == name; };
  const auto first = std::find_if(model.layers.begin(), model.layers.end(), is_it);
  if (first == model.layers.end()) {
    std::vector<std::string_view> names;
    for (const Layer& layer : model.layers) names.push_back(layer.name);
    throw InputError("the model has no layer \"" + name + "\" to recompute" +
                     did_you_mean(name, names));
  }
  if (std::find_if(first + 1, model.layers.end(), is_it) != model.layers.end()) {
    throw InputError("several layers of the model are called \"" + name +
                     "\"; name the one to recompute by its index");
  }
  return static_cast<std::size_t>(first - model.layers.begin());
}

std::size_t layer_at(const Model& model, const std::variant<int, std::string>& which) {
  if (const auto* name = std::get_if<std::string>(&which)) return layer_named(model, *name);
  const auto index = static_cast<std::size_t>(std::get<int>(which));
  if (index >= model.layers.size()) {
    throw InputError("layer " + std::to_string(index) +
                     " is to be recomputed, but the model's are " + "0 to " +
                     std::to_string(model.layers.size() - 1));
  }
  return index;
}

std::string text_of(const std::variant<int, std::string>& which) {
  if (const auto* name = std::get_if<std::string>(&which)) return "\"" + *name + "\"";
  return std::to_string(std::get<int>(which));
}

/// "0-2, 5": where the list has this.
std::string runs_of(std::span<const LayerRecompute> list, LayerRecompute what) {
  std::string text;
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = begin;
    while (end < list.size() && list[end] == what) ++end;
    if (end > begin) {
      text += (text.empty() ? "" : ", ") + std::to_string(begin);
      if (end > begin + 1) text += "-" + std::to_string(end - 1);
    }
    begin = std::max(end, begin + 1);
  }
  return text;
}

}  // namespace

std::string_view to_string(LayerRecompute recompute) {
  return recompute == LayerRecompute::None        ? "none"
         : recompute == LayerRecompute::Attention ? "selective"
                                                  : "full";
}

std::string describe_recompute(std::span<const LayerRecompute> of_stage) {
  std::string text;
  for (const auto what : {LayerRecompute::Whole, LayerRecompute::Attention, LayerRecompute::None}) {
    const std::string stages = runs_of(of_stage, what);
    if (stages.empty()) continue;
    text += (text.empty() ? "" : ", ") + std::string(to_string(what)) + " on " + stages;
  }
  return text;
}

std::vector<LayerRecompute> recompute_of(const Model& model, const RecomputeSpec& spec) {
  std::vector<LayerRecompute> layers(model.layers.size(), LayerRecompute::None);
  switch (spec.kind) {
    case RecomputeSpec::Kind::None:
      break;
    case RecomputeSpec::Kind::Full:
      std::fill(layers.begin(), layers.end(), LayerRecompute::Whole);
      break;
    case RecomputeSpec::Kind::Selective:
      std::fill(layers.begin(), layers.end(), LayerRecompute::Attention);
      break;
    case RecomputeSpec::Kind::Listed:
      for (const auto& which : spec.layers) layers[layer_at(model, which)] = LayerRecompute::Whole;
      for (const auto& which : spec.attention_of) {
        LayerRecompute& layer = layers[layer_at(model, which)];
        if (layer == LayerRecompute::Whole)
          throw InputError("layer " + text_of(which) + " stands under \"full\" and \"selective\"");
        layer = LayerRecompute::Attention;
      }
      break;
  }
  return layers;
}

RecomputeSpec recompute_spec(std::span<const LayerRecompute> of_layer) {
  using Kind = RecomputeSpec::Kind;
  RecomputeSpec spec{Kind::Listed};
  for (std::size_t l = 0; l < of_layer.size(); ++l) {
    if (of_layer[l] == LayerRecompute::Whole) spec.layers.emplace_back(static_cast<int>(l));
    if (of_layer[l] == LayerRecompute::Attention)
      spec.attention_of.emplace_back(static_cast<int>(l));
  }
  if (spec.layers.size() == of_layer.size()) return {Kind::Full};
  if (spec.attention_of.size() == of_layer.size()) return {Kind::Selective};
  if (spec.layers.empty() && spec.attention_of.empty()) return {};
  return spec;
}

RecomputeSpec read_recompute(const JsonCursor& value) {
  using Kind = RecomputeSpec::Kind;
  if (value.value().is_string()) {
    return {read_choice<Kind>(
        value, {{"none", Kind::None}, {"full", Kind::Full}, {"selective", Kind::Selective}})};
  }
  if (value.value().is_array()) return {Kind::Listed, read_layer_list(value)};
  if (!value.value().is_object())
    value.fail("\"none\", \"full\", \"selective\", a list of layers, or an object of such lists");
  value.only({"full", "selective"});
  RecomputeSpec spec{Kind::Listed};
  if (const auto whole = value.find("full")) spec.layers = read_layer_list(*whole);
  spec.attention_of = read_layer_list(value.at("selective"));
  return spec;
}

Json to_json(const RecomputeSpec& spec) {
  switch (spec.kind) {
    case RecomputeSpec::Kind::None:
      return "none";
    case RecomputeSpec::Kind::Full:
      return "full";
    case RecomputeSpec::Kind::Selective:
      return "selective";
    case RecomputeSpec::Kind::Listed:
      break;
  }
  if (spec.attention_of.empty()) return layers_json(spec.layers);
  return {{"full", layers_json(spec.layers)}, {"selective", layers_json(spec.attention_of)}};
}

void require_recompute_fits(const JsonCursor& training, const Model& model) {
  const auto value = training.find("recompute");
  if (!value) return;
  parsed_at(*value, [&] { return recompute_of(model, read_recompute(*value)); });
}

}  // namespace pipewright
