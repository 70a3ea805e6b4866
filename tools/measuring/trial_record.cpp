#include "tools/measuring/trial_record.hpp"

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::tools {

std::string_view name_of(TrialOutcome outcome) {
  switch (outcome) {
    case TrialOutcome::Ran:
      return "ran";
    case TrialOutcome::OutOfMemory:
      return "out of memory";
    case TrialOutcome::TimedOut:
      return "timed out";
    case TrialOutcome::Failed:
      return "failed";
  }
  throw_bug(__FILE__, __LINE__, "an outcome has no name");
}

Json to_json(const TrialRecord& record) {
  Json json = {{"outcome", name_of(record.outcome)}, {"took_ns", record.took.value}};
  if (record.outcome == TrialOutcome::Ran) json["step_ns"] = record.step.value;
  if (record.peak.value > 0) json["peak_bytes"] = record.peak.value;
  if (!record.why.empty()) json["why"] = record.why;
  return json;
}

std::string text_of(const TrialRecord& record) {
  return to_json(record).dump(-1, ' ', true, Json::error_handler_t::replace);
}

TrialRecord read_trial_record(std::string_view text) {
  constexpr const char* kFile = "the journal of trials";
  const Json document = parse_json(text, kFile);
  const JsonCursor root(document, kFile);
  root.only({"outcome", "took_ns", "step_ns", "peak_bytes", "why"});
  TrialRecord record;
  std::vector<std::pair<std::string_view, TrialOutcome>> outcomes;
  for (const auto outcome :
       {TrialOutcome::Ran, TrialOutcome::OutOfMemory, TrialOutcome::TimedOut, TrialOutcome::Failed})
    outcomes.emplace_back(name_of(outcome), outcome);
  record.outcome = read_choice(root.at("outcome"), outcomes);
  record.took = Nanoseconds(root.at("took_ns").integer(0, INT64_MAX));
  if (record.outcome == TrialOutcome::Ran)
    record.step = Nanoseconds(root.at("step_ns").integer(1, kMostNanoseconds));
  if (const auto peak = root.find("peak_bytes")) record.peak = Bytes(peak->integer(1, kMostBytes));
  if (const auto why = root.find("why")) record.why = why->string();
  return record;
}

}  // namespace pipewright::tools
