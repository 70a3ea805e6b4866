#include "core/plan/measured_steps.hpp"

#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr const char *kOne = "measured_step", *kSeveral = "measured_steps";
constexpr std::size_t kMostSteps = 256;

MeasuredStep read_step(const JsonCursor& value) {
  value.only({"configuration", "step_ns", "peak_bytes", "out_of_memory"});
  MeasuredStep step;
  step.configuration = read_name(value.at("configuration"));
  step.file = value.file();
  step.pointer = value.pointer();
  const auto failed = value.find("out_of_memory");
  if (failed && failed->boolean()) {
    for (const char* key : {"step_ns", "peak_bytes"}) {
      if (const auto other = value.find(key))
        other->fail("nothing here, as the configuration ran out of memory");
    }
    return step;
  }
  step.step = Nanoseconds(value.at("step_ns").integer(1, kMostNanoseconds));
  if (const auto peak = value.find("peak_bytes")) step.peak = Bytes(peak->integer(1, kMostBytes));
  return step;
}

Json json_of(const MeasuredStep& step) {
  Json json = {{"configuration", step.configuration}};
  if (!step.ran()) {
    json["out_of_memory"] = true;
    return json;
  }
  json["step_ns"] = step.step.value;
  if (step.peak.value > 0) json["peak_bytes"] = step.peak.value;
  return json;
}

}  // namespace

std::vector<MeasuredStep> read_measured_steps(const JsonCursor& document) {
  const auto one = document.find(kOne), several = document.find(kSeveral);
  if (one && several) one->fail("either measured_step or measured_steps, not both");
  if (one) return {read_step(*one)};
  std::vector<MeasuredStep> steps;
  if (!several) return steps;
  for (const JsonCursor& each : several->elements()) steps.push_back(read_step(each));
  if (steps.empty() || steps.size() > kMostSteps)
    several->fail("1 to " + std::to_string(kMostSteps) + " measured steps");
  return steps;
}

std::vector<MeasuredStep> load_measured_steps(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  const JsonCursor root(document, path);
  if (!root.find("schema")) root.only({kOne, kSeveral});
  std::vector<MeasuredStep> steps = read_measured_steps(root);
  if (steps.empty()) root.fail("a list \"measured_steps\" of what was timed");
  return steps;
}

void put_measured_steps(const std::vector<MeasuredStep>& steps, Json& document) {
  if (steps.empty()) return;
  if (steps.size() == 1) {
    document[kOne] = json_of(steps.front());
    return;
  }
  Json list = Json::array();
  for (const MeasuredStep& step : steps) list.push_back(json_of(step));
  document[kSeveral] = std::move(list);
}

}  // namespace pipewright
