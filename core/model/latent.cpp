#include "core/model/latent.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/json_fields.hpp"
#include "core/model/layers.hpp"

namespace pipewright {
namespace {

/// width -> rank -> out, with a norm between.
std::vector<Layer> through_rank(int width, int rank, int out) {
  return {linear_layer("down", width, rank, false),
          layer_of_width("norm", LayerKind::RmsNorm, rank), linear_layer("up", rank, out, false)};
}

}  // namespace

LatentWidths read_latent_widths(const JsonCursor& value, int most) {
  value.only({"query_rank", "key_value_rank", "plain", "rotary", "value"});
  const auto width = [&](std::string_view key) { return read_count(value.at(key), 1, most); };
  LatentWidths widths;
  if (value.find("query_rank")) widths.query_rank = width("query_rank");
  widths.key_value_rank = width("key_value_rank");
  widths.plain = width("plain");
  widths.rotary = width("rotary");
  widths.value = width("value");
  return widths;
}

Json to_json(const LatentWidths& widths) {
  Json json = Json::object();
  if (widths.query_rank > 0) json["query_rank"] = widths.query_rank;
  json["key_value_rank"] = widths.key_value_rank;
  json["plain"] = widths.plain;
  json["rotary"] = widths.rotary;
  json["value"] = widths.value;
  return json;
}

LatentWidths read_latent_widths_of_layer(const JsonCursor& value, int heads) {
  const LatentWidths widths = read_latent_widths(value, kWidest);
  if (widths.rotary % 2 != 0)
    value.at("rotary").fail("an even width, for rotary positions turn pairs of numbers");
  if (widths.plain + std::max(widths.rotary, widths.value) > kWidest / heads) {
    value.fail("widths of which plain + rotary and plain + value are at most " +
               std::to_string(kWidest / heads) + ", because there are " + std::to_string(heads) +
               " heads");
  }
  return widths;
}

std::vector<Layer> latent_queries(const Layer& layer) {
  const int out = layer.heads * layer.latent.query();
  if (layer.latent.query_rank == 0) return {linear_layer("up", layer.in, out, false)};
  return through_rank(layer.in, layer.latent.query_rank, out);
}

std::vector<Layer> latent_keys_and_values(const Layer& layer) {
  return through_rank(layer.in, layer.latent.key_value_rank,
                      layer.heads * (layer.latent.plain + layer.latent.value));
}

Layer latent_rotary_key(const Layer& layer) {
  return linear_layer("rotary key", layer.in, layer.latent.rotary, false);
}

std::vector<Layer> latent_layers(const Layer& layer) {
  std::vector<Layer> all = latent_queries(layer);
  for (Layer& one : latent_keys_and_values(layer)) all.push_back(std::move(one));
  all.push_back(latent_rotary_key(layer));
  return all;
}

}  // namespace pipewright
