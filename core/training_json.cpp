#include "core/training_json.hpp"

#include "core/json_fields.hpp"

namespace pipewright {

std::uint64_t read_seed(const JsonCursor& value) {
  if (value.value().is_number_unsigned()) {
    return value.value().get<std::uint64_t>();
  }
  return static_cast<std::uint64_t>(value.integer(0, INT64_MAX));
}

TrainingSpec read_training(const JsonCursor& value) {
  value.only(
      {"optimizer", "learning_rate", "steps", "seed", "data", "recompute", "clip_grad_norm"});
  TrainingSpec training;
  if (const auto optimizer = value.find("optimizer")) {
    training.optimizer = read_choice<std::string>(*optimizer, {{"adamw", "adamw"}, {"sgd", "sgd"}});
  }
  if (const auto rate = value.find("learning_rate")) {
    training.learning_rate = rate->number(0, 1000);
  }
  if (const auto steps = value.find("steps")) {
    training.steps = read_count(*steps, 1, 1'000'000'000);
  }
  if (const auto seed = value.find("seed")) {
    training.seed = read_seed(*seed);
  }
  if (const auto data = value.find("data")) {
    training.data = read_path(*data);
  }
  if (const auto clip = value.find("clip_grad_norm")) {
    training.clip_grad_norm = clip->number(0, 1e15);
  }
  if (const auto recompute = value.find("recompute")) {
    training.recompute = read_recompute(*recompute);
  }
  return training;
}

Json to_json(const TrainingSpec& training) {
  Json json = {{"optimizer", training.optimizer},
               {"learning_rate", training.learning_rate},
               {"steps", training.steps},
               {"seed", training.seed},
               {"data", training.data}};
  if (training.clip_grad_norm > 0) json["clip_grad_norm"] = training.clip_grad_norm;
  if (training.recompute.kind != RecomputeSpec::Kind::None) {
    json["recompute"] = to_json(training.recompute);
  }
  return json;
}

}  // namespace pipewright
