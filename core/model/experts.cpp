#include "core/model/experts.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr double kLargestFactor = 1e6;

bool is_expert_layer(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::Linear:
      return !layer.tied;
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::Swiglu:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<std::string_view> expert_choice_keys() {
  return {"experts", "top_k", "normalised", "capacity_factor", "balance_loss", "z_loss"};
}

ExpertChoice read_expert_choice(const JsonCursor& value) {
  ExpertChoice choice;
  choice.experts = read_count(value.at("experts"), 1, kMostExperts);
  choice.top_k = read_count(value.at("top_k"), 1, std::min(choice.experts, kMostChosenExperts));
  if (const auto normalised = value.find("normalised")) choice.normalises = normalised->boolean();
  if (const auto factor = value.find("capacity_factor")) {
    choice.capacity_factor = factor->number(0, kLargestFactor);
    if (choice.capacity_factor == 0)
      factor->fail("a factor above 0, such as 1.25; leave it out to drop nothing");
  }
  if (const auto loss = value.find("balance_loss"))
    choice.balance_loss = loss->number(0, kLargestFactor);
  if (const auto loss = value.find("z_loss")) choice.z_loss = loss->number(0, kLargestFactor);
  return choice;
}

void write_expert_choice(const ExpertChoice& choice, Json& json) {
  json["experts"] = choice.experts;
  json["top_k"] = choice.top_k;
  if (!choice.normalises) json["normalised"] = false;
  if (choice.capacity_factor > 0) json["capacity_factor"] = choice.capacity_factor;
  if (choice.balance_loss > 0) json["balance_loss"] = choice.balance_loss;
  if (choice.z_loss > 0) json["z_loss"] = choice.z_loss;
}

void require_expert_layers(const JsonCursor& list, const std::vector<Layer>& layers) {
  const std::vector<JsonCursor> elements = list.elements();
  for (std::size_t k = 0; k < layers.size(); ++k) {
    if (is_expert_layer(layers[k])) continue;
    throw InputError(elements[k].file(), elements[k].pointer() + "/kind",
                     "an expert consists of layers of kind linear (not tied), relu, gelu and "
                     "swiglu, found " +
                         std::string(to_string(layers[k].kind)));
  }
}

std::int64_t expert_capacity(const ExpertChoice& choice, std::int64_t rows) {
  if (choice.capacity_factor == 0) return rows;
  const double even = static_cast<double>(rows) * choice.top_k / choice.experts;
  const double most = std::ceil(choice.capacity_factor * even);
  return most < static_cast<double>(rows) ? static_cast<std::int64_t>(most) : rows;
}

}  // namespace pipewright
