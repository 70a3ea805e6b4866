#include "core/training_json.hpp"

#include "core/json_fields.hpp"

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
  value.only({"optimizer", "learning_rate", "steps", "seed", "data"});
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
    read_data(*data, training);
  }
  return training;
}

Json to_json(const TrainingSpec& training) {
  return {{"optimizer", training.optimizer},
          {"learning_rate", training.learning_rate},
          {"steps", training.steps},
          {"seed", training.seed},
          {"data", data_json(training)}};
}

}  // namespace pipewright
