#include "core/plan/training_json.hpp"

#include "core/base/json_fields.hpp"

namespace pipewright {

std::uint64_t read_seed(const JsonCursor& value) {
  if (value.value().is_number_unsigned()) {
    return value.value().get<std::uint64_t>();
  }
  return static_cast<std::uint64_t>(value.integer(0, INT64_MAX));
}

namespace {

/// "data": a path, or {"inputs", and "labels" or "targets"}.
void read_data(const JsonCursor& value, TrainingSpec& training) {
  if (!value.value().is_object()) {
    training.data = read_path(value);
    return;
  }
  value.only({"inputs", "labels", "targets"});
  const auto array = [](const JsonCursor& path) {
    if (!path.string().ends_with(".npy")) path.fail("the path of a .npy file");
    return read_path(path);
  };
  training.data = array(value.at("inputs"));
  if (const auto labels = value.find("labels")) training.labels = array(*labels);
  if (const auto targets = value.find("targets")) {
    if (!training.labels.empty()) targets->fail("either labels or targets");
    training.targets = array(*targets);
  }
}

Json data_json(const TrainingSpec& training) {
  if (training.labels.empty() && training.targets.empty()) return training.data;
  Json json = {{"inputs", training.data}};
  if (!training.labels.empty()) json["labels"] = training.labels;
  if (!training.targets.empty()) json["targets"] = training.targets;
  return json;
}

}  // namespace

TrainingSpec read_training(const JsonCursor& value) {
  value.only({"optimizer", "learning_rate", "steps", "seed", "data", "recompute", "clip_grad_norm",
              "assumed"});
  TrainingSpec training;
  if (const auto optimizer = value.find("optimizer")) {
    training.optimizer = read_choice<std::string>(*optimizer, {{"adamw", "adamw"}, {"sgd", "sgd"}});
  }
  if (const auto rate = value.find("learning_rate")) {
    training.learning_rate = rate->number(0, 1000);
    training.learning_rate_given = true;
  }
  if (const auto steps = value.find("steps")) {
    training.steps = read_count(*steps, 1, 1'000'000'000);
    training.steps_given = true;
  }
  if (const auto seed = value.find("seed")) {
    training.seed = read_seed(*seed);
  }
  if (const auto data = value.find("data")) {
    read_data(*data, training);
  }
  if (const auto clip = value.find("clip_grad_norm")) {
    training.clip_grad_norm = clip->number(0, 1e15);
    training.clip_grad_norm_given = true;
  }
  if (const auto recompute = value.find("recompute")) {
    training.recompute = read_recompute(*recompute);
  }
  if (const auto assumed = value.find("assumed")) {
    for (const JsonCursor& key : assumed->elements()) {
      const bool is_rate = read_choice<bool>(key, {{"learning_rate", true}, {"steps", false}});
      (is_rate ? training.learning_rate_given : training.steps_given) = false;
    }
  }
  return training;
}

Json to_json(const TrainingSpec& training) {
  Json json = {{"optimizer", training.optimizer},
               {"learning_rate", training.learning_rate},
               {"steps", training.steps},
               {"seed", training.seed},
               {"data", data_json(training)}};
  if (training.clip_grad_norm > 0 || training.clip_grad_norm_given)
    json["clip_grad_norm"] = training.clip_grad_norm;
  if (training.recompute.kind != RecomputeSpec::Kind::None) {
    json["recompute"] = to_json(training.recompute);
  }
  Json assumed = Json::array();
  if (!training.learning_rate_given) assumed.push_back("learning_rate");
  if (!training.steps_given) assumed.push_back("steps");
  if (!assumed.empty()) json["assumed"] = assumed;
  return json;
}

}  // namespace pipewright
