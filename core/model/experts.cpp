#include "core/model/experts.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr double kLargestFactor = 1e6, kSmallestScaling = 1e-6;

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

/// A group is judged by its two best experts.
void read_groups(const JsonCursor& value, ExpertChoice& choice) {
  const auto groups = value.find("groups"), top_groups = value.find("top_groups");
  if (!groups) {
    if (top_groups) top_groups->fail("no such key without \"groups\"");
    return;
  }
  choice.groups = read_count(*groups, 1, kMostExperts);
  if (choice.experts % choice.groups != 0 ||
      (choice.groups > 1 && choice.experts / choice.groups < 2)) {
    groups->fail("a number that divides experts = " + std::to_string(choice.experts) +
                 " into groups of two or more");
  }
  const int each = choice.experts / choice.groups;
  choice.top_groups = top_groups ? read_count(*top_groups, 1, choice.groups) : choice.groups;
  if (choice.top_groups * each < choice.top_k) {
    top_groups->fail("groups enough for top_k = " + std::to_string(choice.top_k) +
                     " experts, which are " + std::to_string((choice.top_k + each - 1) / each));
  }
}

}  // namespace

std::vector<std::string_view> expert_choice_keys() {
  return {"experts",    "top_k",           "scoring",      "normalised",   "scaling", "groups",
          "top_groups", "capacity_factor", "balance_loss", "balance_rate", "z_loss"};
}

ExpertChoice read_expert_choice(const JsonCursor& value) {
  ExpertChoice choice;
  choice.experts = read_count(value.at("experts"), 1, kMostExperts);
  choice.top_k = read_count(value.at("top_k"), 1, std::min(choice.experts, kMostChosenExperts));
  if (const auto scoring = value.find("scoring"))
    choice.scores = read_choice<RouterScores>(
        *scoring, {{"softmax", RouterScores::Softmax}, {"sigmoid", RouterScores::Sigmoid}});
  read_groups(value, choice);
  if (const auto scaling = value.find("scaling"))
    choice.scaling = scaling->number(kSmallestScaling, kLargestFactor);
  if (const auto normalised = value.find("normalised")) choice.normalises = normalised->boolean();
  if (const auto factor = value.find("capacity_factor")) {
    choice.capacity_factor = factor->number(0, kLargestFactor);
    if (choice.capacity_factor == 0)
      factor->fail("a factor above 0, such as 1.25; leave it out to drop nothing");
  }
  if (const auto loss = value.find("balance_loss"))
    choice.balance_loss = loss->number(0, kLargestFactor);
  if (const auto rate = value.find("balance_rate")) choice.balance_rate = rate->number(0, 1);
  if (const auto loss = value.find("z_loss")) choice.z_loss = loss->number(0, kLargestFactor);
  return choice;
}

void write_expert_choice(const ExpertChoice& choice, Json& json) {
  json["experts"] = choice.experts;
  json["top_k"] = choice.top_k;
  if (choice.scores == RouterScores::Sigmoid) json["scoring"] = "sigmoid";
  if (choice.groups > 1) {
    json["groups"] = choice.groups;
    json["top_groups"] = choice.top_groups;
  }
  if (choice.scaling != 1) json["scaling"] = choice.scaling;
  if (!choice.normalises) json["normalised"] = false;
  if (choice.capacity_factor > 0) json["capacity_factor"] = choice.capacity_factor;
  if (choice.balance_loss > 0) json["balance_loss"] = choice.balance_loss;
  if (choice.balance_rate > 0) json["balance_rate"] = choice.balance_rate;
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
