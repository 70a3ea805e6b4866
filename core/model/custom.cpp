#include "core/model/custom.hpp"

#include <limits>

#include "core/base/json_fields.hpp"
#include "core/model/layers.hpp"

namespace pipewright {

namespace {

constexpr std::int64_t kMostWeights = std::int64_t{1} << 50;
constexpr double kMostOperations = 1e18;
constexpr std::int64_t kMostBytesOfRow = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::vector<std::string_view> custom_keys() {
  return {"name",     "kind",    "inputs",     "in",   "out", "type",
          "settings", "weights", "operations", "kept", "held"};
}

void read_custom(const JsonCursor& value, Layer& layer) {
  layer.custom.type = read_name(value.at("type"));
  if (const auto out = value.find("out")) layer.out = read_count(*out, 1, kWidest);
  if (const auto settings = value.find("settings")) {
    for (const auto& [name, setting] : settings->members()) {
      layer.custom.settings[name] = setting.string();
    }
  }
  if (const auto weights = value.find("weights")) {
    layer.custom.weights = weights->integer(0, kMostWeights);
  }
  const auto operations = value.find("operations");
  layer.custom.operations = operations
                                ? operations->number(0, kMostOperations)
                                : 2.0 * static_cast<double>(layer.custom.weights) + layer.out;
  if (const auto kept = value.find("kept")) layer.custom.kept = kept->integer(0, kMostBytesOfRow);
  if (const auto held = value.find("held")) layer.custom.held = held->integer(0, kMostBytesOfRow);
}

void write_custom(const Layer& layer, Json& json) {
  json["out"] = layer.out;
  json["type"] = layer.custom.type;
  json["settings"] = Json::object();
  for (const auto& [name, setting] : layer.custom.settings) json["settings"][name] = setting;
  json["weights"] = layer.custom.weights;
  json["operations"] = layer.custom.operations;
  if (layer.custom.kept > 0) json["kept"] = layer.custom.kept;
  if (layer.custom.held > 0) json["held"] = layer.custom.held;
}

}  // namespace pipewright
