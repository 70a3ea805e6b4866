#include "planner/search/record.hpp"

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace pipewright::planner {
namespace {

constexpr const char* kFile = "search journal";
constexpr std::int64_t kMostRecorded = INT64_MAX;

/// Whether the verdict would be the same under this limit, 0: none.
bool holds_under(LeftOut why, Bytes limit, Bytes limit_of_record) {
  const auto as_number = [](Bytes bytes) { return bytes.value > 0 ? bytes.value : INT64_MAX; };
  const std::int64_t now = as_number(limit), then = as_number(limit_of_record);
  if (why == LeftOut::OverMemory) return now <= then;
  if (why == LeftOut::Stuck) return now >= then;  // under less it may hold too much first
  return now == then;
}

}  // namespace

std::string key_of(const Configuration& configuration, const std::string& evaluation_key) {
  const Candidate row = unpriced(configuration);
  return describe(row) + ", " + row.partition + ", " + evaluation_key;
}

std::string record_of(const Evaluation& evaluation, Bytes limit) {
  if (evaluation.pruned) {
    return Json{{"pruned", sentence_of(*evaluation.pruned)},
                {"limit_bytes", limit.value},
                {"simulated", evaluation.simulated}}
        .dump();
  }
  const Candidate& candidate = evaluation.candidate;
  Json recompute = Json::array();
  for (const LayerRecompute kind : candidate.parallel.recompute.of_stage)
    recompute.push_back(static_cast<int>(kind));
  return Json{
      {"step_ns", candidate.step.value},           {"recompute_of_stage", recompute},
      {"bubble_ratio", candidate.bubble_ratio},    {"peak_activations", candidate.peak_activations},
      {"peak_bytes", candidate.peak_bytes.value},  {"fullest_rank", candidate.fullest_rank},
      {"state_bytes", candidate.state_bytes.value}}
      .dump();
}

std::optional<Evaluation> evaluation_of(const std::string& record, const Branch& branch,
                                        Bytes limit) {
  const Json json = parse_json(record, kFile);
  const JsonCursor cursor(json, kFile);
  Evaluation evaluation;
  if (const auto pruned = cursor.find("pruned")) {
    evaluation.pruned = left_out_of(pruned->string());
    if (!evaluation.pruned) pruned->fail("no reason that this version knows");
    evaluation.simulated = cursor.at("simulated").boolean();
    const Bytes limit_of_record(cursor.at("limit_bytes").integer(0, kMostRecorded));
    if (!holds_under(*evaluation.pruned, limit, limit_of_record)) return std::nullopt;
    return evaluation;
  }
  evaluation.simulated = true;
  const Configuration& configuration = branch.configuration;
  evaluation.schedule_index = static_cast<std::size_t>(configuration.schedule - schedules().data());
  Candidate& candidate = evaluation.candidate = unpriced(configuration);
  candidate.stages = *branch.stages;
  auto& recompute = candidate.parallel.recompute.of_stage;
  recompute.clear();
  for (const JsonCursor& kind : cursor.at("recompute_of_stage").elements())
    recompute.push_back(static_cast<LayerRecompute>(kind.integer(0, 2)));
  if (!recompute.empty() && recompute.size() != candidate.stages.size())
    cursor.at("recompute_of_stage").fail("one number a stage");
  candidate.step = Nanoseconds(cursor.at("step_ns").integer(0, kMostRecorded));
  candidate.bubble_ratio = cursor.at("bubble_ratio").number(0, 1);
  for (const JsonCursor& peak : cursor.at("peak_activations").elements())
    candidate.peak_activations.push_back(static_cast<int>(peak.integer(0, INT32_MAX)));
  candidate.peak_bytes = Bytes(cursor.at("peak_bytes").integer(0, kMostRecorded));
  if (limit.value > 0 && candidate.peak_bytes > limit) {
    Evaluation over;
    over.pruned = LeftOut::OverMemory;
    return over;
  }
  candidate.fullest_rank = static_cast<int>(cursor.at("fullest_rank").integer(0, INT32_MAX));
  candidate.state_bytes = Bytes(cursor.at("state_bytes").integer(0, kMostRecorded));
  return evaluation;
}

}  // namespace pipewright::planner
